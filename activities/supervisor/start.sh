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
  # Nothing has run: the story goes, and the same start may be tried again.
  ( succeed ) || { rm -f "${K}_st"; discard; exit 3; }
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
  slice=1 due=
  while :; do
    wait_lock 8 s $slice && break
    overdue
    pull
    say alive
    lineage
    [ "$above" = "$above_first" ] || exit 1
    [ $slice -ge 5 ] || slice=$((slice + 1))
  done
}

overdue() { # a step that is past its time although its watchdog should have ended it: that was killed, or stopped
  if [ -z "$due" ]; then
    state
    [ "$s" = started ] && [ "$s_boot" = "$boot" ] || return 0
    due=$((${s_begin%.*} + TIMEOUT + GRACE / 50 + 15))
  fi
  uptime
  [ "${up%.*}" -gt "$due" ] || return 0
  state
  [ "$s" = started ] || return 0
  true > "${K}_over"
  end_step "$GRACE"
  wake_runner
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
  [ "$s$s_clean" != lost- ] || { alive || s_clean=$proven; }
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

