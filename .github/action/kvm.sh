#!/usr/bin/env bash
# Second step of action.yml: makes /dev/kvm usable, which on GitHub's runners belongs to root. Everything comes through the
# environment: INPUT_PLATFORM, INPUT_ENABLE_KVM; BLOODHOUND_KVM_DEVICE is for the tests. With `auto` nothing that goes wrong
# here is an error: the ptrace platform needs no device.
set -euo pipefail

fail() {
    printf '::error title=Bloodhound::%s\n' "$(printf '%s' "$2" | tr '\r\n%' '   ')"
    exit "$1"
}

platform=${INPUT_PLATFORM:-auto}
enable=${INPUT_ENABLE_KVM:-auto}
device=${BLOODHOUND_KVM_DEVICE:-/dev/kvm}
case $platform in
    auto | ptrace | kvm) ;;
    *) fail 2 "the input platform is $platform; auto, ptrace and kvm are known" ;;
esac
case $enable in
    auto) if [ "$platform" = ptrace ]; then enable=false; fi ;;
    true | false) ;;
    *) fail 2 "the input enable-kvm is $enable; auto, true and false are known" ;;
esac

if [ "$enable" = false ]; then
    echo "$device is left as it is."
    exit 0
fi

instead=
if [ "$platform" = auto ]; then instead=" Services run on ptrace."; fi

# The test that counts: opening it for reading and writing. (`<>` would create a file, so it must be there.)
opens() {
    [ -e "$device" ] && (exec 3<>"$device") 2>/dev/null
}

# -n: a password can be asked for nowhere.
root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

by_rule() {
    printf '%s\n' 'KERNEL=="kvm", GROUP="kvm", MODE="0666", OPTIONS+="static_node=kvm"' |
        root tee /etc/udev/rules.d/99-kvm4all.rules >/dev/null &&
        root udevadm control --reload-rules &&
        root udevadm trigger --name-match=kvm || return 1
    # Until the rule has been applied; if that takes longer, there is chmod.
    root udevadm settle --timeout=10 || true
}

unusable() {
    if [ "$enable" = true ]; then
        fail 5 "KVM cannot be used: $1. Set the input enable-kvm to auto, and platform to auto or ptrace, to do without it."
    fi
    printf '::notice title=Bloodhound::KVM cannot be used: %s.%s\n' "$1" "$instead"
    exit 0
}

if opens; then
    echo "$device can be opened."
    exit 0
fi
if [ ! -e "$device" ]; then
    unusable "there is no $device; the runner has to be an x86-64 machine with (nested) virtualisation, and a job in a container needs 'options: --device /dev/kvm'"
fi

# The rule lasts over a reboot of a self-hosted runner, but udev has been seen to miss it; the mode holds at once. Each is
# tried whether or not the other works.
by_rule || echo "The udev rule could not be set."
opens || root chmod 0666 "$device" || echo "The mode of $device could not be set."
if opens; then
    echo "$device can be opened now."
    exit 0
fi
unusable "$device cannot be opened for reading and writing, with neither a udev rule nor chmod"
