"""A headless Chromium that opens a page, moves the pointer and clicks: the DevTools protocol over pipes."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe")


class Browser:
    """One tab. `errors` are what the page's scripts and its security policy complained about."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, os.fdopen(answers, "rb")
        self._number, self._session = 0, ""
        self.errors: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._number:
            self._note(answer)
        assert "error" not in answer, (method, answer)
        return dict(answer["result"])

    def open(self, path: Path, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Open a file in a window of this size and wait until it is loaded."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.navigate", url=path.resolve().as_uri())
        while (event := self._read()).get("method") != "Page.loadEventFired":
            self._note(event)

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression, or of the promise that it is."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def move(self, x: float, y: float) -> None:
        """Move the pointer to a place in the window."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str, number: int = 0) -> None:
        """Click on the middle of an element."""
        x, y = self.middle(selector, number)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def middle(self, selector: str, number: int = 0) -> tuple[float, float]:
        """Scroll an element into the window and return its middle, once the page knows of the scroll."""
        box = self.run(
            f"(async () => {{const e = document.querySelectorAll({json.dumps(selector)})[{number}];"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "for (const _ of [1, 2]) await new Promise(requestAnimationFrame);"
            "const b = e.getBoundingClientRect();"
            "return [b.x + b.width / 2, b.y + b.height / 2]})()"
        )
        return float(box[0]), float(box[1])

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Write a picture of the page."""
        found = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def _read(self) -> dict[str, Any]:
        text = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            assert byte, "Chromium has ended"
            text += byte
        return dict(json.loads(text))

    def _note(self, event: dict[str, Any]) -> None:
        method, told = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(str(told["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.errors.append(str(told["entry"]["text"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(str(told["request"]["url"]))


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Start Chromium with an empty profile; end it at the end."""
    assert CHROMIUM is not None
    (read, write), (read_own, write_own) = os.pipe(), os.pipe()
    command = f'exec "$0" "$@" 3<&{read} 4>&{write_own}'
    process = subprocess.Popen(
        ["bash", "-c", command, CHROMIUM, *_OPTIONS, f"--user-data-dir={profile}"],
        pass_fds=(read, write_own),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(read)
    os.close(write_own)
    try:
        yield Browser(write, read_own)
    finally:
        process.terminate()
        process.wait(20)
        os.close(write)
