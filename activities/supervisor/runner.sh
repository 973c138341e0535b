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
  case $s in started | none) end_step "$GRACE" ;; esac # none: its records were removed under it
}

leave_nothing() { # of an attempt that failed: the next one finds the machine to itself. Sets clean
  if end_step "$GRACE"; then clean=1; elif alive; then clean=0; else clean=-; fi
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
  [ $rc = 0 ] || { leave_nothing; finish exited $rc $signal - $clean; }
  [ "$LEN_CHECK" != - ] || finish exited 0 - changed -
  true > "${K}_chk"
  check
  [ $rc != 0 ] || finish exited 0 - changed -
  complain >> "${K}_err"
  leave_nothing
  finish exited 0 - verify-failed $clean
}

