# Runs on the host: one turn of the loop is one boot of the machine, and the loop holds the machine's lock.
# Arguments: NAME IP FOLDER VETH. Standard input is the machine's lock file, already locked by the starter, so
# that whoever starts a machine knows that nobody else does.
# Environment: GROUP (cgroup folder), BRIDGE, GATEWAY, PREFIX, TIME_NAMESPACE (yes or no), SSHD_OPTIONS, PATH.
set -e
NAME=$1 IP=$2 FOLDER=$3 VETH=$4
umask 022
HERE=$(cd "${0%/*}" && pwd)
export HERE
exec 9<&0 </dev/null
trap '' HUP INT TERM PIPE
cd "$FOLDER"
# Out of the starter's cgroup: a service manager that ends the starter would end the loop, but not the machine.
echo 0 >"${GROUP%/*}/cgroup.procs"

MAC=$(printf '02:70:%02x:%02x:%02x:%02x' $(echo "$IP" | tr . ' '))
# Every id this host has, each mapped to itself.
UID_MAP=$(while read -r first _ count; do echo "$first $first $count"; done </proc/self/uid_map)
GID_MAP=$(while read -r first _ count; do echo "$first $first $count"; done </proc/self/gid_map)

boot() {
  # Called as a condition, which switches `set -e` off in here: hence every `|| return 1`.
  mkdir -p "$GROUP" || return 1
  # Folders that the last boot left behind, or its steps would be found again.
  find "$GROUP" -mindepth 1 -depth -type d -exec rmdir {} + || return 1
  rm -f go pid1 booted
  mkfifo -m 600 go || return 1
  cat /proc/sys/kernel/random/uuid >boot_id || return 1
  clock=
  if [ "$TIME_NAMESPACE" = yes ]; then
    read -r up _ </proc/uptime
    clock="--time --boottime -${up%.*}"
  fi
  # Read and write, so that neither opening nor writing can block when the other side has died.
  exec 8<>go
  (
    exec 8>&- 9>&-
    echo 0 >"$GROUP/cgroup.procs" || exit 1
    exec unshare --mount $clock --fork sh "$HERE/outer.sh" "$NAME" "$IP"
  ) &
  unshare_pid=$!
  until [ -e pid1 ]; do
    kill -0 "$unshare_pid" 2>/dev/null || return 1
    sleep 0.01
  done
  read -r pid1 <pid1
  printf '%s\n' "$UID_MAP" >"/proc/$pid1/uid_map" || return 1
  printf '%s\n' "$GID_MAP" >"/proc/$pid1/gid_map" || return 1
  ip link del "$VETH" 2>/dev/null || :
  ip link add "$VETH" type veth peer name eth0 address "$MAC" netns "$pid1" || return 1
  ip link set "$VETH" master "$BRIDGE" up || return 1
  echo >&8
}

while [ ! -e stop ]; do
  if ! boot; then
    echo "boot failed" >&2
    echo 1 2>/dev/null >"$GROUP/cgroup.kill" || :
    exit 1
  fi
  status=0
  wait "$unshare_pid" || status=$?
  exec 8>&-
  echo "$(date +%s) $status" >>boots
  # 129: restart, 130: halt or power off (both from reboot(2) inside), 137: killed, 1: init failed.
  [ "$status" = 129 ] || exit 0
done
