# Becomes pid 1 of the machine. Arguments: NAME IP [mapped]; the working directory is the machine's folder.
# `set -e` and the two device checks are vital: a root that was not switched would leave the rest of this
# script, and all the machine does later, at work on the host's files.
set -e
NAME=$1 IP=$2
if [ "$3" != mapped ]; then
  # The old /proc is still mounted, so this is the pid that the host sees.
  read -r pid _ </proc/self/stat
  echo "$pid" >pid1.new
  mv pid1.new pid1
  read -r _ <go || :
  # Again, now as a root that is known here: this shell was started without one, and so without its rights.
  exec sh -c 'eval "$INIT"' init "$NAME" "$IP" mapped
fi
# One descriptor reaches back to the folder, to tell the host that the root was switched.
exec 7>booted
host=$(stat -c %d /)
[ "$(stat -c %d root)" != "$host" ]
# Onto itself: else pivot_root refuses in a user namespace.
mount --rbind root root
cd root

ip link set lo up
ip addr add "$IP/$PREFIX" dev eth0
ip link set eth0 up
ip route add default via "$GATEWAY"

mount -t proc -o nosuid,nodev,noexec proc proc
# All of these would act on the host; above all, a write to sysrq-trigger can reset it.
for name in irq bus fs acpi scsi asound mtrr sysrq-trigger; do
  [ -e "proc/$name" ] || continue
  mount --bind "proc/$name" "proc/$name"
  mount -o remount,bind,ro "proc/$name"
done

# Global settings: the machine writes to copies of its own. What belongs to its namespaces stays real.
mkdir dev/sysctl
mount -t tmpfs -o mode=755,nosuid,nodev,noexec sysctl dev/sysctl
# Files that only accept writes cannot be copied, hence the checks instead of cp's status.
cp -r proc/sys/vm proc/sys/kernel proc/sys/fs dev/sysctl/ 2>/dev/null || :
for name in vm/swappiness kernel/pid_max fs/file-max; do [ -s "dev/sysctl/$name" ]; done
for name in hostname domainname random/uuid; do
  mount --bind "proc/sys/kernel/$name" "dev/sysctl/kernel/$name"
done
mount --bind ../boot_id dev/sysctl/kernel/random/boot_id
mount -o remount,bind,ro dev/sysctl/kernel/random/boot_id
mount --bind proc/sys proc/sys
mount --bind proc/sys/net proc/sys/net
mount -o remount,bind,ro proc/sys
for name in vm kernel fs; do mount --rbind "dev/sysctl/$name" "proc/sys/$name"; done
umount -l dev/sysctl
rmdir dev/sysctl

mount -t sysfs -o ro,nosuid,nodev,noexec sysfs sys
mount -t cgroup2 -o nosuid,nodev,noexec cgroup sys/fs/cgroup
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
mount -t tmpfs -o mode=1777,nosuid,nodev shm dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s fd/0 dev/stdin
ln -s fd/1 dev/stdout
ln -s fd/2 dev/stderr
mount -t tmpfs -o mode=755,nosuid,nodev run run
mkdir -p -m 755 run/sshd
mkdir -p -m 1777 run/lock
mount -t tmpfs -o mode=1777,nosuid,nodev tmp tmp

pivot_root . .
umount -l .
cd /
[ "$(stat -c %d /)" != "$host" ]
echo yes >&7
exec 7>&-
# The disk's name counts, as on any machine; a broken one must not keep it from starting.
read -r name </etc/hostname || name=$NAME
hostname "$name" || hostname "$NAME"

# A shell around sshd, not sshd itself: killing sshd then costs 0.2 s, not the machine; and it reaps orphans.
exec setpriv --bounding-set -mknod,-sys_module,-sys_rawio,-sys_time,-syslog \
  env -i container=bringup PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  sh -c 'trap "" TERM HUP INT PIPE
    sysctl -q --system >/dev/null 2>&1
    while :; do /usr/sbin/sshd -D -e -f /etc/ssh/sshd_bringup "$@"; sleep 0.2; done' init $SSHD_OPTIONS \
  </dev/null >>/var/log/console 2>&1
