"""Makes .venv with everything that is needed, once: checks Java and disk, then installs what requirements.lock pins.

Here lives the set-up of a clone, with the standard library alone. Not here: anything that runs afterwards. Each
failure ends with a message that says what to do. A stamp in .venv tells that the environment belongs to this lock file
and this interpreter, so that a second run is instant.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"
LOCK = ROOT / "requirements.lock"
BROKER = ROOT / "packages" / "penstock-broker"
STAMP = ENVIRONMENT / ".penstock-stamp"
JAVA_FLOOR = 17
GIB = 1024**3
ENVIRONMENT_BYTES = 2 * GIB
"""What .venv takes on disk, with some room."""
TEMPORARY_BYTES = int(1.5 * GIB)
"""What pip unpacks and builds beside it (pyspark comes as a source package of 450 MB)."""


class BootstrapError(Exception):
    """The environment cannot be made; the message says why and what to do."""


def java_version(text: str) -> int | None:
    """Return the major version that `java -version` printed as `text`, None if it names none (1.8 counts as 8)."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if found is None:
        return None
    major = int(found.group(1))
    return int(found.group(2) or 0) if major == 1 else major


def check_java() -> None:
    """Raise BootstrapError unless a Java of 17 or newer is at hand, where Spark will look for it."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = (
        f"Install Java {JAVA_FLOOR} or newer (Debian and Ubuntu: apt install openjdk-17-jre-headless; "
        "macOS: brew install openjdk@17) and put it on PATH or set JAVA_HOME."
    )
    if java is None:
        raise BootstrapError(f"Spark needs Java, and no java was found on PATH. {advice}")
    try:
        ran = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        source = f"JAVA_HOME={home}" if home else f"PATH ({java})"
        raise BootstrapError(f"Spark needs Java, and the one of {source} does not start: {error}. {advice}") from error
    version = java_version(ran.stderr + ran.stdout)
    if version is None:
        raise BootstrapError(f"Spark needs Java, and {java} does not tell its version. {advice}")
    if version < JAVA_FLOOR:
        raise BootstrapError(f"Spark needs Java {JAVA_FLOOR} or newer, and {java} is Java {version}. {advice}")


def check_disk() -> None:
    """Raise BootstrapError unless the disks of .venv and of temporary files have room for the installation."""
    temporary = Path(tempfile.gettempdir())
    needs = {ROOT: ENVIRONMENT_BYTES}
    if temporary.stat().st_dev == ROOT.stat().st_dev:
        needs[ROOT] += TEMPORARY_BYTES
    else:
        needs[temporary] = TEMPORARY_BYTES
    for directory, needed in needs.items():
        free = shutil.disk_usage(directory).free
        if free < needed:
            raise BootstrapError(
                f"The installation needs {needed / GIB:.1f} GiB free at {directory}, "
                f"and there are {free / GIB:.1f} GiB. "
                "Make room (temporary files: set TMPDIR to another disk) and run it again."
            )


def fingerprint() -> str:
    """Return what the environment depends on: interpreter, place of the clone, lock file and projects."""
    digest = hashlib.sha256()
    for part in (sys.version, str(ROOT)):
        digest.update(part.encode() + b"\0")
    for path in (LOCK, *(project / "pyproject.toml" for project in (BROKER, ROOT))):
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


def pip(*arguments: str) -> None:
    """Run pip of .venv on `arguments`, its progress on this terminal; raises BootstrapError if it fails."""
    command = [str(ENVIRONMENT / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", *arguments]
    if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
        raise BootstrapError(
            "pip could not install the packages (its own message stands above). Look at the network, "
            "a proxy (HTTPS_PROXY, PIP_CERT) and the room on disk, then run it again: what has been downloaded is kept."
        )


def install() -> None:
    """Make .venv and install the packages of the lock file, then the two projects of this repository."""
    if importlib.util.find_spec("ensurepip") is None:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise BootstrapError(
            f"This Python cannot make virtual environments: install python{version}-venv (Debian and Ubuntu)."
        )
    count = sum(1 for line in LOCK.read_text().splitlines() if re.match(r"[a-z0-9]", line))
    print(
        f"Making {ENVIRONMENT.name} with {count} packages: "
        "about 700 MB to download and some minutes, the first time only.",
        flush=True,
    )
    STAMP.unlink(missing_ok=True)
    made = subprocess.run([sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)], check=False)
    if made.returncode != 0:
        raise BootstrapError(f"{sys.executable} -m venv failed (its own message stands above).")
    pip("install", "--progress-bar", "on", "--use-pep517", "--require-hashes", "-r", str(LOCK))
    pip("install", "--quiet", "--no-deps", "--no-build-isolation", "--editable", str(BROKER), "--editable", str(ROOT))
    STAMP.write_text(fingerprint())


def main() -> int:
    """Check and install; return 0, 1 after a failure that a message explains, or 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(description="Make .venv with everything that Penstock needs.")
    parser.add_argument("--no-java", action="store_true", help="do not ask for Java, which only Spark needs")
    arguments = parser.parse_args()
    try:
        if not arguments.no_java:
            check_java()
        if not STAMP.exists() or STAMP.read_text() != fingerprint():
            check_disk()
            install()
    except BootstrapError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\npenstock: interrupted; run it again to continue.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
