#!/bin/sh
# Finds a Python of 3.11 or newer and hands over to bootstrap.py, which makes .venv. PYTHON=/path/to/python chooses one.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14 python}; do
    if command -v "$candidate" >/dev/null 2>&1 &&
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
        exec "$candidate" "$here/bootstrap.py" "$@"
    fi
done
echo "penstock: no Python of 3.11 or newer was found (looked for: ${PYTHON:-python3, python3.11 to python3.14})." >&2
echo "Install one (Debian and Ubuntu: apt install python3 python3-venv; macOS: brew install python@3.13)," >&2
echo "or name it: PYTHON=/path/to/python make demo" >&2
exit 1
