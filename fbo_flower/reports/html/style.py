"""The style and the script of the page. Colours are variables, so that a dark window has its own."""

from __future__ import annotations

from collections.abc import Sequence

_NAMES = ("paper", "ink", "soft", "line", "tint", "accent", "on")
_LIGHT = ("#ffffff", "#1c1f23", "#5c6670", "#d9dee3", "#f3f5f7", "#0072b2", "#ffffff")
_DARK = ("#15181c", "#e6e9ec", "#a3adb7", "#3a424a", "#20252b", "#5fb3e6", "#10141a")

_RULES = """
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main,header,footer{max-width:72rem;margin:0 auto;padding:0 1rem}
h1{font-size:1.5rem;line-height:1.25;margin:1.5rem 0 .25rem;overflow-wrap:anywhere}
h2{font-size:1.2rem;margin:2.25rem 0 .5rem;border-bottom:1px solid var(--line);padding-bottom:.25rem}
h3,h4{font-size:1rem;margin:1rem 0 .25rem;overflow-wrap:anywhere}
p{margin:.5rem 0;overflow-wrap:anywhere;max-width:50rem}
.note,figcaption,footer,caption{color:var(--soft);font-size:.9rem}
nav{display:flex;flex-wrap:wrap;gap:.25rem 1rem;margin:.75rem 0}
a{color:var(--accent)}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.5rem,1fr));gap:.5rem;margin:1rem 0}
dl div{background:var(--tint);border-radius:.5rem;padding:.5rem .75rem}
dt{color:var(--soft);font-size:.85rem}
dd{margin:0;font-size:1.15rem;font-weight:600;overflow-wrap:anywhere}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,19rem),1fr));gap:1rem}
figure{margin:0;max-width:36rem}
svg{width:100%;height:auto;display:block}
svg text{font:11.5px system-ui,sans-serif;fill:var(--soft)}
svg .label{fill:var(--ink)}
svg .end,svg .last{text-anchor:end}svg .middle{text-anchor:middle}
svg .grid{stroke:var(--line);stroke-width:.6;fill:none}
svg .axis,svg .tick{stroke:var(--soft);stroke-width:.8;fill:none}
svg .agent{fill:none;stroke:var(--c);stroke-width:.8;opacity:.45}
svg .agent:hover{stroke-width:2.5;opacity:1}
svg .mean{fill:none;stroke:var(--c);stroke-width:2.2}
svg .halo{fill:none;stroke:var(--paper);stroke-width:5;opacity:.8}
svg .band{fill:var(--c);opacity:.18}
svg .dot{fill:var(--c);opacity:.45}
svg .best{fill:var(--c);stroke:var(--ink);stroke-width:.9}
svg .key{fill:var(--c)}
svg rect{fill:var(--accent);shape-rendering:crispEdges}
.wide{overflow-x:auto;margin:.5rem 0}
#best .wide{max-height:34rem;overflow:auto}
table{border-collapse:collapse;font-size:.9rem}
caption{text-align:left}
th,td{text-align:left;padding:.3rem .75rem .3rem 0;border-bottom:1px solid var(--line);vertical-align:top}
th{font-weight:600}
.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.shares table,#traffic table{width:100%;max-width:44rem}
.shares td:last-child{width:40%}
#traffic td:last-child{min-width:8rem}
.bar{display:inline-block;height:.7rem;background:var(--accent)}
.bar.light{opacity:.4}
code{font:.85rem ui-monospace,monospace;background:var(--tint);border-radius:.25rem;padding:.05rem .25rem}
.copy{display:flex;gap:.5rem;align-items:flex-start;min-width:15rem}
.copy code{flex:1;overflow-wrap:anywhere;white-space:pre-wrap}
button{font:inherit;font-size:.85rem;color:var(--on);background:var(--accent);border:0;border-radius:.3rem;
padding:.15rem .6rem;cursor:pointer}
th.n{white-space:normal}
#privacy code{overflow-wrap:anywhere}
footer{margin:2.5rem auto 2rem}
@media(max-width:40rem){
#best thead{display:none}
#best tr{display:flex;flex-wrap:wrap;gap:0 1rem;border-bottom:1px solid var(--line);padding:.35rem 0}
#best td{border:0;padding:.1rem 0}
#best td:last-child{flex-basis:100%}
#best table,#best tbody{display:block;width:100%}
.copy{min-width:0}
#traffic th:last-child,#traffic td:last-child{display:none}
}
@media print{button{display:none}.wide{overflow:visible}}
"""

# without a secure page there is no clipboard: then the text is selected, and the reader copies it
SCRIPT = """
document.addEventListener("click",function(event){
  var button=event.target.closest(".copy button");
  if(!button)return;
  var code=button.previousElementSibling;
  function done(word){button.textContent=word;setTimeout(function(){button.textContent="Copy"},1500)}
  function select(){var range=document.createRange();range.selectNodeContents(code);
    var chosen=getSelection();chosen.removeAllRanges();chosen.addRange(range);
    done(document.execCommand("copy")?"Copied":"Selected")}
  if(navigator.clipboard)navigator.clipboard.writeText(code.textContent).then(function(){done("Copied")},select);
  else select();
});
"""


def style(colours: Sequence[str], num_levels: int) -> str:
    """Return the style sheet; `colours` are those of the runs, as "#rrggbb" on white."""
    names = [*_NAMES, *(f"c{k}" for k in range(len(colours)))]
    light = _variables(names, [*_LIGHT, *colours])
    dark = _variables(names, [*_DARK, *map(lightened, colours)])
    runs = "".join(f".c{k}{{--c:var(--c{k})}}" for k in range(len(colours)))
    levels = "".join(
        f"svg .l{k}{{fill-opacity:{0.06 + 0.86 * k / (num_levels - 1):.2f}}}" for k in range(num_levels)
    )
    return (
        f":root{{color-scheme:light dark;{light}}}"
        f"@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"
        f"{runs}{levels}{_RULES}"
    )


def _variables(names: Sequence[str], colours: Sequence[str]) -> str:
    return ";".join(f"--{name}:{colour}" for name, colour in zip(names, colours, strict=True))


def lightened(colour: str) -> str:
    """Return a colour for a dark background: mixed with white until it is bright enough.

    >>> lightened("#000000"), lightened("#e69f00"), lightened("#ffffff")
    ('#a6a6a6', '#e7a208', '#ffffff')
    """
    red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    brightness = (0.3 * red + 0.59 * green + 0.11 * blue) / 255
    white = max(0.65 - brightness, 0.0) / (1.0 - brightness) if brightness < 1.0 else 0.0
    return "#" + "".join(f"{channel + round(white * (255 - channel)):02x}" for channel in (red, green, blue))
