# ---- what the machine is able to do --------------------------------------------------------------------

way() { # sets boot, way, btime, reset, lock; looks anew after each boot
  read -r boot < /proc/sys/kernel/random/boot_id
  known= lock=
  # Two lines: an earlier version of this script reads, and writes, the first only.
  [ ! -e "$BASE/way" ] || { read -r known way btime reset; read -r lock; } < "$BASE/way"
  [ "$known" = "$boot" ] && [ -n "$lock" ] || probe
}

probe() {
  sleep 0.01 2>/dev/null || fail health "the machine's sleep takes no fractions of a second, which are needed"
  writable "$BASE/way.$$"
  probe_lock
  probe_processes
  reset=--default-signal=INT,QUIT
  /usr/bin/env $reset true 2>/dev/null || reset=-
  uptime
  btime=$(($(date +%s) - ${up%.*}))
  printf '%s\n' "$boot $way $btime $reset" "$lock" > "$BASE/way.$$" && mv "$BASE/way.$$" "$BASE/way" ||
    fail io "$BASE/way: No space left on device"
}

probe_lock() {
  exec 7>> "$BASE/way.$$"
  for lock in flock poll perl python3; do
    case $lock in flock) flock -w 0.1 7 ;; *) try_lock 7 ;; esac && break
    lock=
  done 2>/dev/null
  exec 7>&-
  [ -n "$lock" ] && return
  rm -f "$BASE/way.$$"
  fail health "none of flock, perl and python3 works on this machine; one is needed to lock a step's records"
}

probe_processes() {
  way=none
  for root in /sys/fs/cgroup /sys/fs/cgroup/unified; do
    [ -e $root/cgroup.procs ] && [ -e $root/cgroup.controllers ] || continue
    trial=$root/$CGROUP/probe-$$
    mkdir -p "$trial" 2>/dev/null || continue
    (echo 0 > "$trial/cgroup.procs" && read -r _ < "$trial/cgroup.events") 2>/dev/null && way=cgroup:$root/$CGROUP
    rmdir "$trial" 2>/dev/null
    [ $way = none ] || break
  done
  case $(uname -m) in x86_64) nr=157 ;; aarch64 | riscv64) nr=167 ;; *) nr= ;; esac
  if [ $way = none ] && [ -n "$nr" ] && perl -e "exit(syscall($nr,36,0,0,0,0)==0?0:1)" 2>/dev/null; then
    way=perl:$nr
  elif [ $way = none ] && python3 -c 'import ctypes; ctypes.CDLL(None).prctl' 2>/dev/null; then
    way=python3
  fi
}

# ---- locks ---------------------------------------------------------------------------------------------
# Of whole files, held by a descriptor: flock of util-linux, a flock that cannot wait for a time (busybox), or the
# same system call through perl or python3 (a busybox without flock).

perl_lock='open F, "<&=$ARGV[0]" or exit 2; my $left = 2 * $ARGV[2];
  until (flock F, $ARGV[1]) { exit 75 if $left-- <= 0; select undef, undef, undef, 0.05 }'
python_lock='import fcntl, sys, time
fd, mode, left = int(sys.argv[1]), int(sys.argv[2]), 2 * int(sys.argv[3])
while True:
    try:
        sys.exit(fcntl.flock(fd, mode))
    except BlockingIOError:
        if left <= 0:
            sys.exit(75)
    left -= 1
    time.sleep(0.05)'

try_lock() { # FD: take the exclusive lock if nobody has one
  case $lock in
    flock | poll) flock -n "$1" ;;
    perl) perl -e "$perl_lock" "$1" 6 0 ;;
    python3) python3 -ISc "$python_lock" "$1" 6 0 ;;
  esac
}

wait_lock() { # FD s|x TENTHS: take a shared or exclusive lock within that time; else false
  mode=5 late=75
  [ "$2" = s ] || mode=6
  case $lock in
    flock) late=1; flock -"$2" -w $(($3 / 10)).$(($3 % 10)) "$1" ;;
    poll) late=1; poll_lock "$@" ;;
    perl) perl -e "$perl_lock" "$1" $mode "$3" ;;
    python3) python3 -ISc "$python_lock" "$1" $mode "$3" ;;
  esac
  case $? in
    0) ;;
    $late) return 1 ;;
    *) fail internal "$lock does not work on this machine any more; nothing can be waited for" ;;
  esac
}

poll_lock() { # as wait_lock; a wait of more than ten seconds may end a second late
  turns=$3 pause=0.1
  [ "$3" -le 100 ] || turns=$(($3 / 10)) pause=1
  until flock -"$2" -n "$1"; do
    [ $? = 1 ] || return 2
    [ $((turns -= 1)) -ge 0 ] || return 1
    sleep $pause
  done
}

# ---- how the processes of a step are found -------------------------------------------------------------

group() { G=${way#cgroup:}/s-$KEY; }

descendants() { # of the runner, its own session (itself, its watchdog, their helpers) left out; "gone" without runner
  cat /proc/[0-9]*/stat 2>/dev/null | awk -v root="$s_pid" -v born="$s_born" '
    { line = held $0 }
    line !~ /\) [A-Za-z] / { held = line " "; next }
    { held = ""; pid = line + 0; sub(/.*\) /, "", line); split(line, f, " ")
      state[pid] = f[1]; kids[f[2]] = kids[f[2]] " " pid; session[pid] = f[4]; start[pid] = f[20] }
    END {
      if (start[root] != born || state[root] == "Z") { print "gone"; exit }
      n = 1; todo[1] = root
      for (i = 1; i <= n; i++) {
        m = split(kids[todo[i]], k, " ")
        for (j = 1; j <= m; j++) {
          todo[++n] = k[j]
          if (session[k[j]] != session[root] && state[k[j]] !~ /[ZX]/) print k[j]
        }
      }
    }'
}

alive() { # is a process of the step left? Sets proven=0 where "no" would be no proof.
  proven=1
  case $way in
    cgroup:*)
      [ -e "$G/cgroup.events" ] || return 1
      while read -r word value; do
        [ "$word $value" = 'populated 1' ] && return 0
      done < "$G/cgroup.events"
      return 1
      ;;
    *)
      [ $way != none ] || proven=0
      pids=$(descendants)
      [ "$pids" != gone ] || proven=0 pids=
      [ -n "$pids" ]
      ;;
  esac 2>/dev/null
}

signal_step() { # NAME
  case $way in
    cgroup:*)
      for procs in "$G/cgroup.procs" "$G"/*/cgroup.procs; do
        [ -e "$procs" ] || continue
        while read -r pid; do kill -s "$1" "$pid"; done < "$procs"
      done
      ;;
    *) for pid in $(descendants); do [ "$pid" = gone ] || kill -s "$1" "$pid"; done ;;
  esac 2>/dev/null
}

kill_step() {
  if [ "${way%%:*}" = cgroup ] && [ -e "$G/cgroup.kill" ]; then
    echo 1 > "$G/cgroup.kill"
  else
    signal_step STOP # nothing forks on while the rest is being found
    signal_step KILL
  fi
}

await_end() { # TICKS of 20 ms of grace, then KILL. True only with proof that nothing is left.
  tick=0
  while alive && [ $tick -lt "$1" ]; do sleep 0.02; tick=$((tick + 1)); done
  tick=0
  while alive; do
    [ $tick -lt 250 ] || return 1
    kill_step
    alive && sleep 0.02
    tick=$((tick + 1))
  done
  [ $proven = 1 ]
}

end_step() { # TICKS: TERM, CONT (a stopped process takes TERM only then), grace, KILL, proof
  signal_step TERM
  signal_step CONT
  await_end "$1"
}

