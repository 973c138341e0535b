# Runs in the machine's own mount namespace, still with the host's rights: the disk and the device nodes,
# which a user namespace may not make. Arguments: NAME IP; the working directory is the machine's folder.
set -e
NAME=$1 IP=$2
mount -t overlay "$NAME" -o "lowerdir=/,upperdir=$PWD/up,workdir=$PWD/wk,index=off,metacopy=off" "$PWD/root"
mount -t tmpfs -o mode=755,size=1m dev root/dev
for node in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0; do
  name=${node%%:*} numbers=${node#*:}
  mknod -m 666 "root/dev/$name" c "${numbers%:*}" "${numbers#*:}"
done
# The text is read here: until its ids are mapped, the new namespace may not walk into other users' folders.
INIT=$(cat "$HERE/init.sh")
export INIT
exec unshare --user --mount --pid --uts --ipc --net --cgroup --fork sh -c 'eval "$INIT"' init "$NAME" "$IP"
