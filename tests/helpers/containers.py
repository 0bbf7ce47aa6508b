"""Run Dockerfiles and services of a compose file without Docker, in copies of this machine's root directory.

Images and containers are layers of an overlay file system over this machine's root, which stands in for the
base image, so nothing outside the test's directory changes. A process of `Machine` holds the mounts and a
network of its own: when it ends, they are gone. Needs root on Linux.
"""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

BASE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # of the base image


def instructions(dockerfile):
    """Yield the instructions of a Dockerfile with their arguments, continued lines joined."""
    lines = [line for line in dockerfile.read_text().splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            yield word.upper(), rest.strip()


def words_of(argument):
    """Return the command of an instruction in its exec form or in its shell form."""
    found = json.loads(argument) if argument.startswith("[") else ["/bin/sh", "-c", argument]
    return found


@dataclass
class Image:
    """What a Dockerfile has made: its layer and how its containers start."""

    layer: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": BASE_PATH})
    user: str = "0:0"
    directory: str = "/"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)


@dataclass
class Machine:
    """A process that holds mounts and a network, in which images are built and containers run.

    Parameters
    ----------
    home : an empty directory for layers and volumes, on a file system that overlays accept
    """

    home: Path
    holder: subprocess.Popen[bytes]
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def inside(self, script, *, network=False):
        """Return a command that runs lines of the shell with the machine's mounts."""
        spaces = f"/proc/{self.holder.pid}/ns"
        entered = [f"--mount={spaces}/mnt", *([f"--net={spaces}/net"] if network else [])]
        return ["nsenter", *entered, "sh", "-euc", script]

    def do(self, *lines, text=""):
        """Run lines of the shell; `text` is their input."""
        subprocess.run(self.inside("\n".join(lines)), input=text.encode(), check=True)

    def mounted(self, name, layers, volumes):
        """Mount a root directory over read-only layers, the uppermost first; return where it is."""
        home, below = self.home / name, ":".join([*map(str, layers), "/"])
        over = f"lowerdir={below},upperdir={home}/layer,workdir={home}/work"
        root = home / "root"
        self.do(
            f"mkdir -p {home}/layer {home}/work {root}",
            f"mount -t overlay {name} -o {over} {root}",
            f"mount -t proc proc {root}/proc",
            f"mount --bind /dev {root}/dev",
            f"mount -t tmpfs -o mode=1777 tmp {root}/tmp",
            *(f"mkdir -p {root}{target}; mount --bind {of} {root}{target}" for of, target in volumes.items()),
        )
        return root

    def command(self, image, root, words, *, network=False):
        """Return the command of a process in a root directory, with an image's user and environment only."""
        environment = [f"{name}={value}" for name, value in image.environment.items()]
        there = f"cd {shlex.quote(image.directory)} && exec {shlex.join(words)}"
        chroot = ["chroot", f"--userspec={image.user}", "--groups=", str(root)]
        clean = ["/usr/bin/env", "-i", *environment, "/bin/sh", "-c", there]
        return self.inside(f"exec {shlex.join([*chroot, *clean])}", network=network)

    def build(self, dockerfile, context):
        """Follow a Dockerfile; every RUN line is executed as its user."""
        name = dockerfile.name.replace(".", "-")
        root = self.mounted(name, [], {})
        image = Image(self.home / name / "layer")
        for word, argument in instructions(dockerfile):
            if word == "FROM":
                self._pretend_base(root)
            elif word == "RUN":
                # what a base image and a network would give: an interpreter, a package index
                environment = {"HOME": "/root", "PIP_DISABLE_PIP_VERSION_CHECK": "1", **image.environment}
                stage = replace(image, environment=environment)
                subprocess.run(self.command(stage, root, words_of(argument)), check=True)
            elif word == "COPY":
                owner = re.match(r"--chown=(\S+)\s+", argument)
                *sources, target = shlex.split(argument[owner.end() if owner else 0 :])
                for source in sources:
                    place = f"{root}{target}{Path(source).name if target.endswith('/') else ''}"
                    self.do(
                        f"mkdir -p $(dirname {place}); cp -rT {context / source} {place}",
                        f"find {place} -name __pycache__ -prune -exec rm -r {{}} +",
                        f"chown -R {owner[1]} {place}" if owner else "",
                    )
            elif word == "ENV":
                image.environment |= dict(part.split("=", 1) for part in shlex.split(argument))
            elif word in {"USER", "WORKDIR"}:
                setattr(image, "user" if word == "USER" else "directory", argument)
            elif word in {"ENTRYPOINT", "CMD"}:
                setattr(image, "entrypoint" if word == "ENTRYPOINT" else "command", words_of(argument))
            elif word != "EXPOSE":
                raise ValueError(f"{dockerfile.name}: {word} is not known here")
        self.do(f"umount --recursive {root}")
        return image

    def start(self, image, name, service, volumes, log):
        """Start a service's process in a new container; its output goes into a file."""
        found = {}
        for entry in service.get("volumes", ()):
            source, target = entry.split(":")[:2]
            path = volumes[source]
            place = image.layer / target.lstrip("/")
            if place.exists() and not any(path.iterdir()):  # as Docker does with a new volume
                os.chown(path, place.stat().st_uid, place.stat().st_gid)
            found[path] = target
        root = self.mounted(name, [image.layer], found)
        self.do(f"cat > {root}/etc/hosts", text="127.0.0.1 localhost superlink\n")
        words = [*service.get("entrypoint", image.entrypoint), *service.get("command", image.command)]
        return self.execute(image, root, words, log)

    def execute(self, image, root, words, log):
        """Start a further process in a container."""
        command = self.command(image, root, words, network=True)
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        self.started.append(process)
        return process

    def _pretend_base(self, root):
        """Make what the image of Python has: `python` in /usr/local/bin, readable by every user."""
        interpreter = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
        script = f'#!/bin/sh\nexec {interpreter} "$@"\n'  # a link would hide where its library is
        place = f"{root}/usr/local/bin/python"
        self.do(f"rm -f {place}; cat > {place}; chmod 755 {place}", text=script)
        self.do(f"chmod o+x {' '.join(f'{root}{parent}' for parent in interpreter.resolve().parents)}")


@contextlib.contextmanager
def machine():
    """Yield a machine; its processes end and its files are deleted with it."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="containers-") as home:
        hold = "ip link set lo up && echo ready && exec sleep 3600"
        holder = subprocess.Popen(["unshare", "--mount", "--net", "sh", "-c", hold], stdout=subprocess.PIPE)
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        made = Machine(Path(home), holder)
        try:
            yield made
        finally:
            for process in made.started:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            holder.kill()
            holder.wait()


def can_run():
    """Return why containers cannot run here; "" if they can."""
    if sys.platform != "linux" or os.geteuid():
        return "needs root on Linux"
    missing = [
        name for name in ("unshare", "nsenter", "chroot", "ip", "useradd") if shutil.which(name) is None
    ]
    if missing:
        return f"needs {', '.join(missing)}"
    tried = (
        "mount -t tmpfs tmp /mnt && mkdir /mnt/u /mnt/w /mnt/m && "
        "mount -t overlay t -o lowerdir=/,upperdir=/mnt/u,workdir=/mnt/w /mnt/m"
    )
    words = ["unshare", "--mount", "sh", "-c", tried]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    return f"needs overlay mounts: {done.stderr.strip()}" if done.returncode else ""
