# Sourced by bin/serve and bin/check: an environment in .venv, made and refreshed only when needed. POSIX sh.

say() { printf '==> %s\n' "$*"; }
warn() { printf '%s\n' "$*" >&2; }
die() { warn "$0: $*"; exit 1; }

# CI=true (or any value but empty, 0, false) turns "could not check this" into a failure.
in_ci() { case "${CI:-}" in '' | 0 | false) return 1 ;; esac; }

# apt_install PACKAGE...: true when they are there afterwards. Asks for nothing, except sudo's password on a terminal.
apt_install() {
    command -v apt-get >/dev/null 2>&1 || return 1
    as_root=
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null 2>&1 || return 1
        sudo -n true 2>/dev/null || [ -t 0 ] || return 1
        as_root=sudo
    fi
    say "apt-get install $*"
    apt_log=$(mktemp) || return 1
    if $as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq >"$apt_log" 2>&1 &&
        $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >>"$apt_log" 2>&1
    then
        rm -f "$apt_log"
    else
        tail -n 5 "$apt_log" >&2
        rm -f "$apt_log"
        return 1
    fi
}

# Prints the first interpreter that runs and is new enough; PYTHON=... overrides the search.
find_python() {
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    return 1
}

venv_works() {
    [ -x .venv/bin/python ] && .venv/bin/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

make_venv() {
    python=$(find_python) || die "needs Python 3.11 or newer on the PATH (or name one: PYTHON=/path/to/python3 $0)"
    if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        # Debian and Ubuntu ship these two modules in a package of their own.
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        apt_install "python$version-venv" || apt_install python3-venv ||
            die "$python has no venv module; as root: apt-get install python$version-venv"
    fi
    say "creating .venv with $("$python" --version)"
    "$python" -m venv --clear .venv || die "could not create .venv"
}

# ensure_env REQUIREMENTS: .venv holds what the file asks for. A stamp with the files' checksum makes the second time free.
ensure_env() {
    venv_works || make_venv
    stamp=.venv/.installed-$1
    wanted=$(cat requirements.txt "$1" | cksum)
    if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
        say "installing $1"
        .venv/bin/python -m pip install -qq --disable-pip-version-check --no-input --root-user-action=ignore \
            -r "$1" || die "pip could not install $1"
        printf '%s\n' "$wanted" >"$stamp"
    fi
}
