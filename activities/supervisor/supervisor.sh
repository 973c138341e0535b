#!/bin/sh
# The step supervisor: starts a step once, streams it, ends it for certain, and remembers how it ended.
#
#   supervisor.sh CGROUP NONCE VERB ARGS...     started by the client with `env -i` and a fixed PATH
#
# Under BASE (two folders above this file):
#   token               highest claim token seen
#   way                 what was found out about the machine on this boot: how processes are found, how files locked
#   runs/KEY_st         the step's story, its last line the state
#   runs/KEY_out, _err  what it printed;  runs/KEY_output  what it wrote to BRINGUP_OUTPUT
#   runs/KEY_lock       claim, liveness and end in one: its runner holds it, and however that dies, the kernel frees it
#   runs/KEY_in_NONCE.* what it was sent, until it has ended
#
# Every answer is a line "#bringup NONCE WORDS" on standard error, preceded by a newline of its own; the exit
# status says nothing. Nothing secret is ever on a command line.
#
# For dash, busybox and other POSIX shells. Needs setsid, env, cat, dd, wc, mkdir, rmdir, rm, mv, sleep, date, uname,
# and one of flock, perl and python3; awk too without cgroups; ls, find, sed, awk, tail and grep to clean up.
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

# ---- the story of a step -------------------------------------------------------------------------------

state() { # reads $K's story into s (none, started, or how it ended) and s_*
  s=none s_boot=- s_token=0 s_pid=0 s_born=0 s_begin=- s_btime=0 s_exit=- s_signal=- s_outcome=- s_clean=- s_end=-
  [ -s "${K}_st" ] || return 0
  while read -r word a b c d e; do
    case $word in
      started) s=started s_boot=$a s_token=$b s_begin=$c s_btime=$d ;;
      runner) s_pid=$a s_born=$b ;;
      *) s=$word s_exit=$a s_signal=$b s_outcome=$c s_clean=$d s_end=$e ;;
    esac
  done < "${K}_st"
}

settled() { # whether nothing can be left of a step that nobody runs
  case $s in
    started) [ "$s_boot" != "$boot" ] ;;
    *) [ "$s_clean" != 0 ] || [ "$s_boot" != "$boot" ] ;;
  esac
}

lost() { # under the lock: it began, nobody runs it, nobody wrote how it ended
  if [ "$s_boot" = "$boot" ]; then s=lost; else s=rebooted s_clean=1; fi
}

record() { # STATE EXIT SIGNAL OUTCOME CLEAN
  uptime
  echo "$* $up" >> "${K}_st"
}

# ---- the runner: a process of its own that outlives the connection ---------------------------------------

phase() { # STDOUT STDERR OUTPUT COMMAND...: one part of the step, in its group and a session of its own.
  # OUTPUT is where it may leave named outputs, or empty. Sets rc, signal.
  out=$1 err=$2 output=$3
  shift 3
  (
    trap - HUP INT TERM PIPE QUIT
    exec >> "$out" 2>> "$err"
    case $way in
      cgroup:*) echo 0 > "$G/cgroup.procs" || exit 125 ;;
      # Where children are found by session, the look at the marks below must come after setsid.
      *)
        look='[ ! -e "$1_over" ] && [ ! -e "$1_cancel" ] || exit 125; shift; exec "$@"'
        set -- /bin/sh -c "$look" sh "$K" "$@"
        ;;
    esac
    # First in the group, then look: whoever marks first and then ends the group cannot miss this process.
    [ ! -e "${K}_over" ] && [ ! -e "${K}_cancel" ] || exit 125
    # Only now the lock: should the runner be killed, it is free only when this process is in its group to be found.
    exec 9>&-
    umask 022
    HOME=~root USER=root LOGNAME=root SHELL=/bin/sh
    export HOME USER LOGNAME SHELL
    cd "$HOME" || cd /
    . "$IN.env"
    unset OLDPWD
    [ -z "$output" ] || export BRINGUP_OUTPUT="$output"
    # A shell's background child ignores INT and QUIT, and no shell can take that back.
    [ $reset = - ] || set -- /usr/bin/env "$reset" "$@"
    exec /usr/bin/setsid "$@"
  )
  rc=$? signal=-
  [ $rc -le 128 ] || [ $rc -gt 192 ] || signal=$((rc - 128))
  interrupted
}

interrupted() {
  if [ -e "${K}_cancel" ]; then
    read -r ticks < "${K}_cancel"
    if await_end "${ticks:-$GRACE}"; then clean=1; else clean=0; fi
    finish canceled - - - $clean
  elif [ -e "${K}_over" ]; then
    wait $dog
    if await_end 0; then clean=1; else clean=0; fi
    finish timed_out - - - $clean
  fi
}

tidy() { rm -f "${K}_in_"* "${K}_chk" "${K}_over" "${K}_cancel"; } # nothing secret stays

finish() { # record, free the lock, then tidy, for the client waits for the lock only
  record "$@"
  exec 9>&-
  tidy
  [ "${way%%:*}" != cgroup ] || rmdir "$G" # fails while a service the step left is in it
  exit 0
}

watchdog() { # ends with the runner, whose lock it waits for, or at the step's time limit
  exec 9>&- 8< "${K}_lock"
  if wait_lock 8 s $((TIMEOUT * 10)); then exit 0; fi
  true > "${K}_over"
  state
  [ "$s" = started ] || exit 0
  end_step "$GRACE"
}

check() { # the step's check; sets rc
  phase "${K}_chk" "${K}_chk" '' "$CHECKER" ${CHECKER_ARG:+"$CHECKER_ARG"} "$IN.check"
}

complain() {
  echo "bringup: the step ended with status 0, but its check still fails with status $rc; the check's output:"
  cat "${K}_chk"
}

runner() {
  trap '' HUP INT TERM PIPE QUIT
  read -r stat < /proc/self/stat
  s_pid=${stat%% *} stat=${stat##*) }
  set -- $stat
  s_born=${20}
  echo "runner $s_pid $s_born" >> "${K}_st"
  [ "${way%%:*}" != cgroup ] || [ -d "$G" ] || mkdir "$G"
  watchdog &
  dog=$!
  if [ "$LEN_CHECK" != - ]; then
    check
    case $rc in 0) finish exited 0 - no-change - ;; 77) finish exited 0 - skipped - ;; esac
  fi
  phase "${K}_out" "${K}_err" "${K}_output" "$INTERPRETER" ${INTERPRETER_ARG:+"$INTERPRETER_ARG"} "$IN.body"
  [ $rc = 0 ] || finish exited $rc $signal - -
  [ "$LEN_CHECK" != - ] || finish exited 0 - changed -
  true > "${K}_chk"
  check
  [ $rc != 0 ] || finish exited 0 - changed -
  complain >> "${K}_err"
  finish exited 0 - verify-failed -
}

# ---- run: start or attach ------------------------------------------------------------------------------

warm() { # make the group, and pass the 5 to 20 ms that the first move between groups waits in the kernel
  exec < /dev/null > /dev/null 2>&1 5>&-
  [ "${way%%:*}" = cgroup ] && mkdir "$G" && echo 0 > "$G/cgroup.procs"
}

arguments() {
  KEY=$1 TOKEN=$2 TIMEOUT=$3 GRACE=$4 OUT_AT=$5 ERR_AT=$6 LEN_BODY=$7 LEN_ENV=$8 LEN_CHECK=$9
  shift 9
  INTERPRETER=$1 INTERPRETER_ARG=$2 CHECKER=$3 CHECKER_ARG=$4
  K=$RUNS/$KEY IN=$RUNS/${KEY}_in_$NONCE
  group
}

discard() { rm -f "$IN.body" "$IN.env" "$IN.check"; }

take() { # NAME SIZE: that much of the input, and not a byte more, as busybox's head would
  message=$({ [ "$2" = 0 ] || exec dd iflag=fullblock bs="$2" count=1; } 2>&1 > "$IN.$1")
}

receive() { # body, environment, check and a last line that proves they came whole, before any lock is taken
  received=1
  take body "$LEN_BODY" && take env "$LEN_ENV" && { [ "$LEN_CHECK" = - ] || take check "$LEN_CHECK"; } ||
    { discard; fail io "$message"; }
  last=
  read -r last
  [ "$last" = '#end' ] && return
  discard
  fail truncated "the step's input ended early; nothing was started"
}

launch() { # under the lock, for a key without a story
  [ $received = 1 ] || fail internal "the step's records were removed while it was looked at"
  uptime
  echo "started $boot $TOKEN $up $btime" 2>/dev/null > "${K}_st" || fail io "${K}_st: No space left on device"
  # Written first, then looked: a token raised in between either stops this here or finds it in the records.
  token
  if [ "$TOKEN" -lt "$highest" ]; then
    record canceled - - - 1
    discard
    fail superseded "$highest"
  fi
  case $way in
    perl:*)
      perl -e 'syscall(shift,36,1,0,0,0)==0 or exit 125; exec @ARGV' "${way#perl:}" \
        /bin/sh "$0" "$CGROUP" "$NONCE" runner "$@" < /dev/null > /dev/null 2>&1 3<&- 4<&- 5>&- &
      ;;
    python3)
      become='ctypes.CDLL(None).prctl(36,1,0,0,0)==0 or sys.exit(125); os.execv(sys.argv[1],sys.argv[1:])'
      python3 -c "import ctypes,os,sys; $become" \
        /bin/sh "$0" "$CGROUP" "$NONCE" runner "$@" < /dev/null > /dev/null 2>&1 3<&- 4<&- 5>&- &
      ;;
    *) runner < /dev/null > /dev/null 2>&1 3<&- 4<&- 5>&- & ;;
  esac
  IN= # the runner's now
}

parent_of() { # PID: sets above
  read -r stat < /proc/"$1"/stat || return 1
  stat=${stat##*) }
  stat=${stat#* }
  above=${stat%% *}
} 2>/dev/null

lineage() { # sets above: the parent; through sudo, which outlives its own parent unmoved, the parent of that too
  parent_of $$
  comm=
  read -r comm 2>/dev/null < /proc/"$above"/comm
  [ "$comm" != sudo ] || { sudo=$above; parent_of "$sudo" && above=$sudo.$above; }
}

copy() { # FROM_FD TO_FD FILE: what is new in the file, up to 8 MiB, so that no flood of it holds up the rest
  [ ! -s "$3" ] || dd bs=1048576 count=8 <&"$1" >&"$2" 2>/dev/null || exit 1
}

position() { read -r _ at < "/proc/self/fdinfo/$1"; } # FD: sets at, in bytes

pull() {
  copy 3 1 "${K}_out"
  copy 4 5 "${K}_err"
}

drain() { # FROM_FD TO_FD FILE: all that was there at the end; what a process that the step left adds may be endless
  position "$1"
  before=$at
  copy "$@"
  position "$1"
  [ $((at - before)) -eq 8388608 ] || return 0
  size=$(wc -c < "$3")
  while [ "$at" -lt "$size" ] && [ "$at" -gt "$before" ]; do
    before=$at
    copy "$@"
    position "$1"
  done
}

attend() { # stream until the lock is free; a closed channel or a dead sshd ends this, and only this
  slice=1
  while :; do
    wait_lock 8 s $slice && break
    pull
    say alive
    lineage
    [ "$above" = "$above_first" ] || exit 1
    [ $slice -ge 5 ] || slice=$((slice + 1))
  done
}

settle() { # until the key's state is a last one, starting it when nobody has
  while state; [ "$s" = none ] || [ "$s" = started ]; do
    exec 9>> "${K}_lock"
    if try_lock 9; then
      state
      case $s in none) launch "$@" ;; started) lost; [ $s = lost ] || tidy; break ;; *) break ;; esac
    fi
    exec 9>&- 8< "${K}_lock"
    attend
    exec 8<&-
  done
}

run() {
  way
  arguments "$@"
  admit
  state
  [ "$s" != none ] || [ "$OUT_AT$ERR_AT" = 00 ] ||
    fail lost-machine "the records of step $KEY are gone, although it had begun; it is not started again"
  for file in "${K}_out" "${K}_err" "${K}_lock"; do writable "$file"; done
  [ -e "${K}_output" ] || writable "${K}_output" # else a pipe that the step put there would hold this up
  received=0
  if [ "$s" = none ]; then
    warm &
    receive
  fi
  printf '\n#bringup %s begin\n' "$NONCE"
  say begin
  exec 2> /dev/null # from here on the channel's standard error carries the step's, byte for byte
  exec 3< "${K}_out" 4< "${K}_err"
  [ "$OUT_AT" = 0 ] || dd bs=1 skip="$OUT_AT" count=0 <&3 2>/dev/null
  [ "$ERR_AT" = 0 ] || dd bs=1 skip="$ERR_AT" count=0 <&4 2>/dev/null
  lineage
  above_first=$above
  settle "$@"
  exec 9>&-
  # The descriptors' positions are what was sent, to the byte: the client compares them with what it got.
  drain 3 1 "${K}_out"
  out_at=$at
  drain 4 5 "${K}_err"
  err_at=$at
  [ $received = 0 ] || [ -z "$IN" ] || discard
  [ "$s" != lost ] || { alive || s_clean=$proven; }
  case $s_boot in - | "$boot") rebooted=0 ;; *) rebooted=1 ;; esac
  output_size
  say "end state=$s exit=$s_exit signal=$s_signal outcome=$s_outcome clean=$s_clean rebooted=$rebooted" \
    "out=$out_at err=$err_at output=$size begin=$s_begin end=$s_end btime=$s_btime"
}

# ---- what a step leaves for others ---------------------------------------------------------------------

output_size() { # sets size; what the step put in the file's place counts only when it is a file
  size=0
  [ ! -f "${K}_output" ] || [ ! -s "${K}_output" ] || size=$(wc -c < "${K}_output")
}

output() {
  [ -s "${K}_st" ] || fail internal "nothing is known of step $KEY"
  output_size
  [ "$size" -le 65536 ] || fail validation "the step wrote $size bytes to BRINGUP_OUTPUT; at most 65536"
  printf '\n#bringup %s begin\n' "$NONCE"
  [ "$size" = 0 ] || head -c "$size" "${K}_output"
  say 'end'
}

# ---- cancel, tokens, clean-up --------------------------------------------------------------------------

cancel_key() { # sets s and clean. $KEY, $K, $G, $GRACE
  writable "${K}_lock"
  while :; do
    exec 9>> "${K}_lock"
    if try_lock 9; then
      cancel_unattended
      exec 9>&-
      return
    fi
    exec 9>&-
    state
    # Something holds the lock for a moment after the end, too.
    if [ "$s" = none ] || [ "$s" = started ]; then
      # On a full disk the mark is made without what is in it, and that will do.
      echo "$GRACE" > "${K}_cancel" || [ -e "${K}_cancel" ] || fail io "${K}_cancel: No space left on device"
      state
      end_step "$GRACE"
    fi
    exec 8< "${K}_lock"
    wait_lock 8 s 100 || { s=running clean=0; return; }
    exec 8<&-
  done
}

cancel_unattended() { # under the lock: no runner
  state
  clean=1
  case $s in
    none) record canceled - - - 1 || fail io "${K}_st: No space left on device"; s=canceled ;; # a late start finds it
    started)
      lost
      if [ $s = lost ]; then
        end_step "$GRACE" || { clean=0; return; }
        record canceled - - - 1
        s=canceled
      fi
      ;;
    *)
      if ! settled; then
        end_step 0 || { clean=0; return; }
        echo "$s $s_exit $s_signal $s_outcome 1 $s_end" >> "${K}_st"
      fi
      ;;
  esac
  tidy
}

token() { highest=0; [ ! -e "$BASE/token" ] || read -r highest < "$BASE/token"; }

admit() { # refuse a lower token; a higher one first ends what lower ones left running
  token
  [ "$TOKEN" -ge "$highest" ] || fail superseded "$highest"
  # The mark: a raise that was cut short, or found something it could not end. Nothing starts before that is done.
  if [ "$TOKEN" -gt "$highest" ] || [ -e "$BASE/raising" ]; then ( raise ) || exit 3; fi
}

raise() { # in a subshell: it walks over other keys
  writable "$BASE/token_lock"
  exec 6>> "$BASE/token_lock"
  wait_lock 6 x 6000 || fail unproven "another raise of the claim token has not ended within ten minutes"
  token
  [ "$TOKEN" -ge "$highest" ] || fail superseded "$highest"
  writable "$BASE/raising"
  if [ "$TOKEN" -gt "$highest" ]; then
    { echo "$TOKEN" > "$BASE/token.new" && mv "$BASE/token.new" "$BASE/token"; } 2>/dev/null ||
      fail io "$BASE/token: No space left on device"
  fi
  left=
  for file in "$RUNS"/*_st; do
    K=${file%_st} KEY=${file##*/} KEY=${KEY%_st}
    [ -e "$file" ] && state && [ "$s_boot" = "$boot" ] && [ "$s_token" -lt "$TOKEN" ] || continue
    ! settled || continue
    group
    cancel_key
    [ $clean = 1 ] || left="$left $KEY"
  done
  [ -z "$left" ] || fail unproven "steps of an earlier holder may still run:$left"
  rm -f "$BASE/raising"
}

# ---- clean-up ------------------------------------------------------------------------------------------

forget() { # LOCK_FILE: remove what is kept of a step, unless it runs or may still run
  K=${1%_lock} KEY=${1##*/} KEY=${KEY%_lock} forgotten=1
  [ -e "$1" ] || return
  group
  exec 9>> "$1"
  if try_lock 9 && state && settled; then
    rm -rf "${K}"_*
    [ ! -d "$G" ] || rmdir "$G" 2>/dev/null
    forgotten=0
  fi
  exec 9>&-
  return $forgotten
}

purge() {
  removed=0 kept=0
  for file in "$RUNS"/*_lock; do
    if forget "$file"; then removed=$((removed + 1)); elif [ -e "$file" ]; then kept=$((kept + 1)); fi
  done
  say "end removed=$removed kept=$kept"
}

prune() { # once a token has been raised: no step of before can start again, so what is kept of old ones may go
  set -- "$RUNS"/*_lock
  [ $# -le 200 ] || for key in $(cd "$RUNS" && prunable); do forget "$RUNS/$key"; done
  for file in "$BASE"/lib/supervisor-*.sh; do # other versions of this script, unless a process runs one
    [ "$file" = "$0" ] || grep -qsF -- "$file" /proc/[0-9]*/cmdline || rm -f "$file"
  done
}

prunable() { # all but the newest 200, when begun more than 30 days ago or not among the newest 1000; 100 at a time
  { find . -name '*_lock' -mtime +30 | sed 's,^\./,old ,'; ls -t; } | awk '
    $1 == "old" { old[$2] = 1; next }
    /_lock$/ && (++n > 1000 || n > 200 && $1 in old)' | tail -n 100
}

facts() {
  ID= VERSION_ID= memory=
  [ ! -r /etc/os-release ] || . /etc/os-release
  while read -r word value _; do [ "$word" != MemTotal: ] || memory=$value; done < /proc/meminfo
  python=/usr/bin/python3
  [ -x $python ] || python=$(command -v python3)
  printf '%s=%s\n' hostname "$(uname -n)" boot_id "$boot" os_id "$ID" os_version "$VERSION_ID" kernel "$(uname -r)" \
    architecture "$(uname -m)" cpus "$(getconf _NPROCESSORS_ONLN || nproc)" memory_kb "$memory" python3 "$python" \
    containment "${way%%:*}"
}

case $VERB in
  run) run "$@" ;;
  runner)
    trap '' HUP INT TERM PIPE QUIT
    way
    arguments "$@"
    runner
    ;;
  cancel)
    KEY=$1 TOKEN=$2 GRACE=$3 K=$RUNS/$1
    way
    admit
    group
    cancel_key
    say "end state=$s clean=$clean"
    ;;
  token)
    TOKEN=$1 GRACE=$2
    way
    token
    ( raise ) || exit 3
    [ "$TOKEN" -le "$highest" ] || prune
    say 'end'
    ;;
  output)
    KEY=$1 K=$RUNS/$1
    output
    ;;
  purge)
    way
    purge
    ;;
  facts)
    way
    printf '\n#bringup %s begin\n' "$NONCE"
    facts
    say 'end'
    ;;
  *) fail internal "unknown verb" ;;
esac
exit 0
