# The first process of a machine of kind namespace, in namespaces of its own; becomes its sshd. All mounts and links
# that it makes disappear with these namespaces.
# In the environment: MACHINE, FOLDER, STORE (the group's folder), ROOT (empty: this host's), LINK, HOST (its address),
# ADDRESSES to try, NAMESERVER, LOGIN, HIDDEN, CGROUPS (PATH:OPTIONS ...), START.
set -eu
exec </dev/null
umask 022
mount --make-rprivate /

ip link set lo up
ip link add eth0 type veth peer name "$LINK" netns /proc/self/fd/7
address=$(nsenter --net=/proc/self/fd/7 sh -c '
    set -eu
    ip addr add "$HOST/32" dev "$LINK"
    ip link set "$LINK" alias "$MACHINE" up
    for address in $ADDRESSES; do
        if ip route add "$address/32" dev "$LINK" src "$HOST" 2>/dev/null; then echo "$address"; exit; fi
    done
    echo "no address is free in the network of this group: widen it by the setting network" >&2
    exit 1
')
exec 7<&-
ip addr add "$address/32" dev eth0
ip link set eth0 up
ip route add "$HOST/32" dev eth0
ip route add default via "$HOST"
echo "$address" >"$FOLDER/.address"
mv "$FOLDER/.address" "$FOLDER/address"

disk=$FOLDER/disk
root=$disk/mount
mkdir -p "$disk/upper" "$disk/work" "$root"
mount -t overlay "$MACHINE" -o "lowerdir=${ROOT:-/},upperdir=$disk/upper,workdir=$disk/work" "$root"

# Makes the folder $1 of the machine an empty one that is not on the overlay; $2: its mode.
plain() {
    mkdir -p "$disk/plain$1"
    chmod "$2" "$disk/plain$1"
    mount --bind "$disk/plain$1" "$root$1"
}

mkdir -p "$root/proc" "$root/dev" "$root/sys" "$root/tmp" "$root/run" "$root/mnt" "$root/root" "$root/var/lib/docker"
plain /tmp 1777
if [ -z "$ROOT" ]; then
    for folder in $HIDDEN "$STORE"; do
        mode=755
        if [ "$folder" = /var/tmp ]; then mode=1777; fi
        if [ -d "$root$folder" ]; then plain "$folder" "$mode"; fi
    done
    chmod 700 "$root/root"
else
    plain /var/lib/docker 710
fi
mount -t tmpfs -o mode=755 run "$root/run"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs -o mode=755 dev "$root/dev"
mkdir "$root/dev/pts" "$root/dev/shm" "$root/dev/net"
for device in null zero full random urandom tty fuse net/tun; do
    if [ -c "/dev/$device" ]; then
        : >"$root/dev/$device"
        mount --bind "/dev/$device" "$root/dev/$device"
    fi
done
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s fd/0 "$root/dev/stdin"
ln -s fd/1 "$root/dev/stdout"
ln -s fd/2 "$root/dev/stderr"
if [ -n "$CGROUPS" ]; then
    mount -t tmpfs -o mode=755 cgroup "$root/sys/fs/cgroup"
    for entry in $CGROUPS; do
        place=$root/sys/fs/cgroup${entry%%:*}
        mkdir -p "$place"
        options=${entry#*:}
        if [ -n "$options" ]; then mount -t cgroup -o "$options" cgroup "$place"; else mount -t cgroup2 cgroup "$place"; fi
    done
fi

hostname "$MACHINE"
echo "$MACHINE" >"$root/etc/hostname"
printf '127.0.0.1 localhost\n%s %s\n' "$address" "$MACHINE" >"$root/etc/hosts"
# The file may be a link to a path that is not mounted here.
rm -f "$root/etc/resolv.conf"
echo "nameserver ${NAMESERVER:-127.0.0.1}" >"$root/etc/resolv.conf"
if ! grep -q "^$LOGIN:" "$root/etc/passwd"; then
    echo "$LOGIN:x:2000:2000::/home/$LOGIN:/bin/sh" >>"$root/etc/passwd"
    echo "$LOGIN:*:1::::::" >>"$root/etc/shadow"
    mkdir -p "$root/home/$LOGIN"
    chown 2000:2000 "$root/home/$LOGIN"
fi
# sshd refuses users with a locked password, even if they have a key.
sed -i "s/^$LOGIN:![^:]*:/$LOGIN:*:/" "$root/etc/shadow"
mkdir -p "$root/run/sshd" "$root/run/machine-sshd"
cp "$FOLDER/host_key" "$FOLDER/authorized_keys" "$FOLDER/sshd_config" "$root/run/machine-sshd/"
chmod 600 "$root/run/machine-sshd/host_key"

cd "$root"
pivot_root . mnt
umount -l /mnt
cd /
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
if [ -n "$START" ]; then env -i PATH="$PATH" HOME=/root sh -c "$START"; fi
exec env -i PATH="$PATH" /usr/sbin/sshd -D -e -f /run/machine-sshd/sshd_config
