"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const tip = document.getElementById("tip");
const hidden = new Set(); // numbers of agents
const near = 14; // pixels from the pointer

// -- copy a configuration; without a secure page there is no clipboard: then the reader copies what is selected
function copy(button) {
  const code = button.previousElementSibling;
  const say = (word) => {
    button.textContent = word;
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  };
  const select = () => {
    getSelection().selectAllChildren(code);
    say(document.execCommand("copy") ? "Copied" : "Selected");
  };
  if (navigator.clipboard) navigator.clipboard.writeText(code.textContent).then(() => say("Copied"), select);
  else select();
}

// -- sort a table by a column; what is no number comes last
function sort(button) {
  const head = button.parentNode, body = head.closest("table").tBodies[0];
  const up = head.getAttribute("aria-sort") !== "ascending";
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const text = (row) => row.cells[head.cellIndex].textContent.trim();
  const size = (row) => {
    const [, number, unit] = /^([+-]?[\d.,]+(?:e[+-]?\d+)?)(?: ?([kMG])B)?/.exec(text(row)) || [];
    const value = number === undefined ? NaN : Number(number.replaceAll(",", ""));
    return value * ({ k: 1e3, M: 1e6, G: 1e9 }[unit] || 1);
  };
  const numeric = head.classList.contains("n");
  const order = (a, b) => {
    if (!numeric) return text(a).localeCompare(text(b), undefined, { numeric: true }) * (up ? 1 : -1);
    const x = size(a), y = size(b);
    if (isNaN(x) || isNaN(y)) return isNaN(x) - isNaN(y);
    return (x - y) * (up ? 1 : -1);
  };
  body.append(...[...body.rows].sort(order));
}

// -- choose agents
function choose() {
  const boxes = [...document.querySelectorAll(".agents input[type=checkbox]")];
  hidden.clear();
  for (const box of boxes) if (!box.checked) hidden.add(Number(box.value));
  document.querySelector(".agents output").textContent =
    hidden.size ? `${boxes.length - hidden.size} of ${boxes.length}` : `all ${boxes.length}`;
  document.body.classList.toggle("chosen", hidden.size > 0);
  for (const element of document.querySelectorAll("[data-a]"))
    element.classList.toggle("off", hidden.has(Number(element.dataset.a)));
  for (const group of document.querySelectorAll("[data-n]"))
    group.dataset.n.split(" ").forEach((note, place) => {
      const dot = group.querySelectorAll("use")[place];
      if (dot) dot.classList.toggle("off", hidden.has(data.notes[note][0]));
    });
}

function filter(text) {
  for (const label of document.querySelectorAll(".agents label"))
    label.hidden = !label.textContent.toLowerCase().includes(text.toLowerCase());
}

function check(on) {
  for (const label of document.querySelectorAll(".agents label"))
    if (!label.hidden) label.querySelector("input").checked = on;
  choose();
}

// -- show what is under the pointer: the nearest dot, else the nearest line
const shapes = new WeakMap(); // picture -> dots and parts of lines

function shapesOf(picture) {
  if (shapes.has(picture)) return shapes.get(picture);
  const found = { dots: [], lines: [] };
  for (const group of picture.querySelectorAll("[data-n]")) {
    const notes = group.dataset.n.split(" ");
    group.querySelectorAll("use").forEach((dot, place) => {
      const [x, y] = ["x", "y"].map((name) => Number(dot.getAttribute(name)));
      const [agent, head, config] = data.notes[notes[place]];
      found.dots.push({ x, y, agent, head, config });
    });
  }
  for (const group of picture.querySelectorAll("[data-a]")) {
    const agent = Number(group.dataset.a);
    if (agent < 0) continue;
    const [name, best, config] = data.agents[agent];
    for (const path of group.querySelectorAll("path")) {
      const points = path.getAttribute("d").match(/[ML] [^ML]+/g) || [];
      points.map((point) => point.slice(2).split(" ").map(Number)).forEach((to, place, all) => {
        const from = place && points[place][0] === "L" ? all[place - 1] : to;
        found.lines.push({ from, to, agent, group, head: best ? `${name}: ${best}` : name, config });
      });
    }
  }
  shapes.set(picture, found);
  return found;
}

function distance(x, y, [x0, y0], [x1, y1]) {
  const length = (x1 - x0) ** 2 + (y1 - y0) ** 2;
  const share = length ? Math.min(1, Math.max(0, ((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / length)) : 0;
  return Math.hypot(x - x0 - share * (x1 - x0), y - y0 - share * (y1 - y0));
}

function nearest(picture, event) {
  const matrix = picture.getScreenCTM();
  const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
  const { dots, lines } = shapesOf(picture);
  const many = !document.body.classList.contains("chosen");
  let best = null, least = near / matrix.a;
  for (const [list, measure] of [
    [dots, (dot) => Math.hypot(x - dot.x, y - dot.y)],
    [lines, (line) => distance(x, y, line.from, line.to)],
  ]) {
    for (const shape of list) {
      if (hidden.has(shape.agent) || (many && shape.group && shape.group.closest(".many"))) continue;
      const far = measure(shape);
      if (far < least) [best, least] = [shape, far];
    }
    if (best) return best;
  }
  return null;
}

function point(event) {
  for (const element of document.querySelectorAll(".near")) element.classList.remove("near");
  for (const ring of document.querySelectorAll(".ring")) ring.remove();
  const picture = event.target.closest("figure svg");
  const shape = picture && nearest(picture, event);
  tip.hidden = !shape;
  if (!shape) return;
  tip.firstElementChild.textContent = shape.head;
  tip.lastElementChild.textContent = shape.config;
  if (shape.group) shape.group.classList.add("near");
  else {
    const ring = document.createElementNS(picture.namespaceURI, "circle");
    for (const [name, value] of [["cx", shape.x], ["cy", shape.y], ["r", 4.5], ["class", "ring"]])
      ring.setAttribute(name, value);
    picture.append(ring);
  }
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
  tip.style.top = `${event.clientY + 14 + height < innerHeight ? event.clientY + 14 : Math.max(4, event.clientY - height - 14)}px`;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.closest(".copy")) copy(button);
  else if (button.closest("th")) sort(button);
  else if (button.value) check(button.value === "all");
});
document.addEventListener("change", (event) => {
  if (event.target.closest(".agents")) choose();
});
document.addEventListener("input", (event) => {
  if (event.target.type === "search") filter(event.target.value);
});
for (const kind of ["pointermove", "pointerdown"]) document.addEventListener(kind, point);
document.addEventListener("scroll", () => { tip.hidden = true; }, true);
