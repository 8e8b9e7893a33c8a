"""A headless Chromium for tests: pages are opened, asked and photographed over a pipe, without any further package."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium to open the page in (Debian: chromium)")

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-extensions --mute-audio --hide-scrollbars "
    "--use-gl=angle --use-angle=swiftshader --enable-unsafe-swiftshader --remote-debugging-pipe"
)

# Chromium reads commands from descriptor 3 and answers on 4
JOIN = """
import os, sys
ends = [os.dup(int(k)) for k in sys.argv[1:3]]
ends = [os.dup(k) if k in (3, 4) else k for k in ends]
os.dup2(ends[0], 3), os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """One page. `open` a file, `ask` it for the value of an expression, `size` it, save a `picture`."""

    def __init__(self) -> None:
        assert CHROMIUM is not None
        self.home = tempfile.TemporaryDirectory(prefix="holonomix-chromium-", ignore_cleanup_errors=True)
        read_commands, self._out = os.pipe()
        self._in, write_answers = os.pipe()
        command = [CHROMIUM, *FLAGS.split(), f"--user-data-dir={self.home.name}", "about:blank"]

        # no Python may run between fork and exec beside the threads of JAX: a small process of its own joins the ends
        ends = (read_commands, write_answers)
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", JOIN, *map(str, ends), *command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=ends,
        )
        os.close(read_commands)
        os.close(write_answers)
        self._buffer, self._next, self._session, self.messages = b"", 0, None, []
        try:
            try:
                targets = self.send("Target.getTargets")["targetInfos"]
            except (AssertionError, OSError) as error:
                pytest.skip(f"Chromium is installed but does not start: {error}")
            page = next(t["targetId"] for t in targets if t["type"] == "page")
            self._session = self.send("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
            self.send("Page.enable")
            self.send("Runtime.enable")
        except BaseException:
            self.close()
            raise

    def send(self, method: str, **params: Any) -> Any:
        self._next += 1
        message = {"id": self._next, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive(60.0)
            if answer.get("id") == self._next:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def _receive(self, seconds: float) -> dict[str, Any]:
        until = time.monotonic() + seconds
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, until - time.monotonic()))
            data = os.read(self._in, 1 << 20) if ready else b""
            assert data, "Chromium does not answer"
            self._buffer += data
        text, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(text)
        if message.get("method") in ("Runtime.exceptionThrown", "Page.javascriptDialogOpening"):
            self.messages.append(message["params"])
        elif message.get("method") == "Runtime.consoleAPICalled" and message["params"]["type"] == "error":
            self.messages.append(message["params"])
        return message

    def size(self, width: int, height: int) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def open(self, page: Path, fragment: str = "") -> None:
        """Load a file and wait for it."""
        self.send("Page.navigate", url="about:blank")
        self.send("Page.navigate", url=f"{page.absolute().as_uri()}{'#' if fragment else ''}{fragment}")
        for _ in range(400):
            if self.ask("document.readyState === 'complete' && location.protocol === 'file:'"):
                return
            time.sleep(0.02)
        raise AssertionError(f"{page} did not load")

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page; promises are awaited."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def picture(self, path: Path, *, whole: bool = False) -> Path:
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))
        return path

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._out)
        os.close(self._in)
        self.home.cleanup()

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
