"""The bubblewrap around a fork server: what it sees of the machine, and what this machine needs for that."""

from __future__ import annotations

import platform
import shutil
import sys
import sysconfig
from pathlib import Path

from training.rl.sandbox import seccomp
from training.rl.sandbox.config import SandboxUnavailable

SYSTEM = (
    *("/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/bin", "/usr/include"),
    *(f"/usr/share/{name}" for name in ("zoneinfo", "perl", "perl5", "nodejs")),  # Debian's modules of Perl and node
    "/etc/alternatives",  # through which /usr/bin/awk and others lead
)
"""What interpreters, compilers and their libraries need of the machine, where it exists."""
LINKS = ("/bin", "/lib", "/lib32", "/lib64")
"""Mostly links into /usr."""
DEVICES = ("null", "zero", "full", "random", "urandom")
NOBODY = tuple(
    "--unshare-all --unshare-user --uid 65534 --gid 65534 --cap-drop ALL --new-session --die-with-parent".split()
)
"""Arguments for namespaces of its own, a user without any right, and an end with whoever started it."""
TO_SEAL = ("CAP_SYS_ADMIN", "CAP_SETPCAP")
"""Capabilities, in its own namespace alone, of what begins with `BECOME`: to seal the devices and to give them up."""
INSIDE = Path(__file__).parent / "inside"
PACKAGE = "training/rl/sandbox/inside"
ENVIRONMENT = {
    "PATH": "/usr/bin",
    "HOME": "/tmp/work",
    "TMPDIR": "/tmp",
    "USER": "nobody",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
}
_OURS = "import sys; sys.path.append('/sandbox'); from training.rl.sandbox.inside."
START = _OURS + "zygote import main; main()"
BECOME = _OURS + "kernel import become; become()"


def requirements() -> str:
    """bubblewrap's path, or SandboxUnavailable with what to do about what is missing."""
    if sys.platform != "linux":
        raise SandboxUnavailable("the sandbox needs Linux: run this in a Linux machine or container")
    if platform.machine() not in seccomp.ARCHITECTURES:
        known = " and ".join(seccomp.ARCHITECTURES)
        raise SandboxUnavailable(f"the sandbox knows the system calls of {known}, not of {platform.machine()}")
    bwrap = shutil.which("bwrap")
    if not bwrap:
        raise SandboxUnavailable("the sandbox needs bubblewrap: install it (`apt-get install bubblewrap`)")
    return bwrap


def interpreter() -> tuple[Path, Path]:
    """The interpreter below every virtual environment, and the folder it needs."""
    prefix = Path(sys.base_prefix).resolve()
    name = f"python{sysconfig.get_python_version()}"
    return prefix / "bin" / name, prefix


def system() -> list[str]:
    """Arguments for what every program needs of the machine, read-only: interpreters, compilers, libraries, devices;
    and for the code of ours that begins there."""
    arguments = []
    _, prefix = interpreter()
    for folder in SYSTEM:
        arguments += ["--ro-bind-try", folder, folder]
    for link in LINKS:
        if Path(link).is_symlink():
            arguments += ["--symlink", str(Path(link).readlink()), link]
        else:
            arguments += ["--ro-bind-try", link, link]
    if prefix != Path("/usr"):
        arguments += ["--ro-bind", str(prefix), str(prefix)]
    arguments += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    for device in DEVICES:
        arguments += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        arguments += ["--symlink", f"/proc/self/fd{target}", f"/dev/{name}"]
    return [*arguments, "--dir", "/dev/shm", "--proc", "/proc", "--ro-bind", str(INSIDE), f"/sandbox/{PACKAGE}"]


def command(bwrap: str, filter_descriptor: int, settings: str) -> list[str]:
    """Arguments that start a fork server: no capability, no network, nothing writable, and of the machine's files only
    interpreters, compilers and libraries, read-only. (Further user namespaces stay possible for it, or it could give
    programs none of their own; they are closed to those.)"""
    arguments = [bwrap, *NOBODY, "--hostname", "sandbox", "--clearenv"]
    arguments += ["--seccomp", str(filter_descriptor), *system(), "--dir", "/tmp"]
    for name, value in ENVIRONMENT.items():
        arguments += ["--setenv", name, value]
    arguments += ["--chdir", "/", "--remount-ro", "/"]
    python, _ = interpreter()
    return [*arguments, str(python), "-P", "-s", "-B", "-X", "utf8", "-c", START, settings]
