#!/bin/sh
# The step supervisor: starts a step once, streams it, ends it for certain, and remembers how it ended.
#
#   supervisor.sh CGROUP NONCE VERB ARGS...     started by the client with `env -i` and a fixed PATH
#
# Under BASE (two folders above this file):
#   token               highest claim token seen
#   way                 what was found out on this boot: how processes are found, how files are locked
#   runs/KEY_st         the step's story, its last line the state
#   runs/KEY_out, _err  what it printed;  runs/KEY_output  what it wrote to BRINGUP_OUTPUT
#   runs/KEY_lock       claim, liveness and end in one: its runner holds it; the kernel frees it however that dies
#   runs/KEY_in_NONCE.* what it was sent, until it has ended
#
# Every answer is a line "#bringup NONCE WORDS" on standard error, preceded by a newline of its own; the exit
# status says nothing. Nothing secret is ever on a command line.
#
# For dash, busybox and other POSIX shells. Needs setsid, env, cat, dd, wc, mkdir, rmdir, rm, mv, sleep, date,
# uname, and one of flock, perl and python3; awk too without cgroups; ls, find, sed, tail and grep to clean up.
#
# One file on the machine, put together from supervisor.sh, machine.sh, runner.sh, start.sh, ending.sh, verbs.sh.
set -u
umask 077
CGROUP=$1 NONCE=$2 VERB=$3
shift 3
BASE=${0%/lib/*}
RUNS=$BASE/runs
nl='
'
exec 5>&2

say() { printf '\n#bringup %s %s\n' "$NONCE" "$*" >&5 || exit 1; }

fail() { # CODE TEXT: refuse, with a reason the client turns into an error
  say "fail $1 ${2%%"$nl"*}"
  exit 3
}

uptime() { read -r up _ < /proc/uptime; }

writable() { # FILE: create it if need be; say why not
  true 2>/dev/null >> "$1" || fail io "$( (true >> "$1") 2>&1)"
}

