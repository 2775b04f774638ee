# Becomes a machine: the command in "$@". Its stdin is the machine's lock, which is held as long as this process lives.
# No other process may keep it open, so a machine is alive if, and only if, its lock is held.
# In the environment: FOLDER, the machine's; GROUPS_, control groups to enter; LEASE, seconds or 0.
set -eu

ticks() {
    read -r stat <"/proc/$$/stat"
    set -- ${stat##*)}
    echo "${20}"
}

echo "$$ $(ticks)" >"$FOLDER/.pid"
mv "$FOLDER/.pid" "$FOLDER/pid"
for group in $GROUPS_; do
    echo "$$" >"$group/cgroup.procs"
done
if [ "$LEASE" != 0 ]; then
    (
        # Counts the time slept here, so that a changed clock or a suspended host does not count.
        before=
        silence=0
        while sleep 5 && kill -0 "$$" 2>/dev/null; do
            # Without the file the folder was removed by hand, and no manager will touch it again.
            asked=$(stat -c %y "$FOLDER/lease" 2>/dev/null) || silence=$LEASE
            if [ -n "$asked" ] && [ "$asked" != "$before" ]; then silence=0; else silence=$((silence + 5)); fi
            before=$asked
            if [ "$silence" -gt "$LEASE" ]; then
                echo "nobody has asked for this machine for more than $LEASE s: it ends" >&2
                kill -KILL 0
            fi
        done
    ) </dev/null &
fi
# Descriptor 7 is this host's network namespace, which boot.sh leaves and has to change.
exec 7</proc/self/ns/net
exec "$@"
