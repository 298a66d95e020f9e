#!/bin/busybox sh
# The first process of the virtual machine: loads the modules, mounts the host's files with a layer in memory over them,
# and goes over to guest.sh there. What goes wrong is said on the console, and the machine ends.

export PATH=/bin
busybox=/bin/busybox

die() {
    echo "stock-kvm: $*" >/dev/console
    $busybox reboot -f
}

mount() {
    $busybox mount "$@" || die "mount $*"
}

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
for module in /modules/*.ko; do
    options=
    if [ -e "$module.options" ]; then read -r options <"$module.options" || :; fi
    $busybox insmod "$module" $options || die "insmod $module $options"
done
[ -c /dev/kvm ] || die "kvm-amd made no /dev/kvm"

mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=512000 host /host
mount -t tmpfs tmpfs /upper
$busybox mkdir /upper/files /upper/work
mount -t overlay -o lowerdir=/host,upperdir=/upper/files,workdir=/upper/work overlay /new
for directory in proc sys dev; do
    $busybox mkdir -p "/new/$directory"
    mount --move "/$directory" "/new/$directory"
done
# What udev would make.
$busybox ln -s /proc/self/fd /new/dev/fd
for link in 0:stdin 1:stdout 2:stderr; do
    $busybox ln -s "fd/${link%:*}" "/new/dev/${link#*:}"
done
$busybox mkdir -p /new/dev/pts /new/dev/shm /new/run
mount -t devpts devpts /new/dev/pts
mount -t tmpfs tmpfs /new/dev/shm
mount -t tmpfs tmpfs /new/run
$busybox cp -a /stock-kvm /bin/busybox /new/run/ || die "cp"
$busybox mv /new/run/busybox /new/run/stock-kvm/
exec $busybox switch_root /new /run/stock-kvm/guest.sh
die "switch_root"
