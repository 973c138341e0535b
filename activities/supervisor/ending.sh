# ---- cancel and tokens ---------------------------------------------------------------------------------

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
      wake_runner
    fi
    exec 8< "${K}_lock"
    wait_lock 8 s 100 || { s=running clean=0; return; }
    exec 8<&-
  done
}

wake_runner() { # one that somebody has stopped would never record the end
  [ "$s_pid" != 0 ] && read -r stat < /proc/"$s_pid"/stat || return 0
  stat=${stat##*) }
  set -- $stat
  [ "${20}" != "$s_born" ] || kill -s CONT "$s_pid"
} 2>/dev/null

cancel_unattended() { # under the lock: no runner
  state
  clean=1
  case $s in
    none) # a late start finds the mark; records that were removed under a step do not hide its processes
      if [ "${way%%:*}" = cgroup ] && alive; then end_step "$GRACE" || { clean=0; return; }; fi
      record canceled - - - 1 || fail io "${K}_st: No space left on device"
      s=canceled
      ;;
    started)
      lost
      if [ $s = lost ]; then
        end_step "$GRACE" || { clean=0; return; }
        record lost - - - 1
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

end_all() { # PREFIX TOKEN EXCEPT: steps whose key begins so, of lower tokens. Sets left. In a subshell: walks over keys
  left=
  for file in "$RUNS/$1"*_st; do
    K=${file%_st} KEY=${file##*/} KEY=${KEY%_st}
    [ -e "$file" ] && [ "$KEY" != "$3" ] && state && [ "$s_boot" = "$boot" ] && [ "$s_token" -lt "$2" ] || continue
    ! settled || continue
    group
    cancel_key
    [ $clean = 1 ] || left="$left $KEY"
  done
  end_strays "$1"
}

end_strays() { # PREFIX: processes whose step's records are gone
  [ "${way%%:*}" = cgroup ] || return 0
  for G in "${way#cgroup:}/s-$1"*; do
    KEY=${G##*/s-} K=$RUNS/${G##*/s-}
    [ -d "$G" ] && state && [ "$s" = none ] && alive || continue
    cancel_key # under the key's lock: it may just be about to start
    [ $clean = 1 ] || left="$left $KEY"
  done
}

quit() { # in a subshell: whatever the run whose keys begin with $KEY and a dot has left running; and nothing more of it
  # The mark first, then the look: who is about to start has either written its story or finds this.
  writable "$RUNS/${KEY}_quit"
  end_all "$KEY." $((TOKEN + 1)) ""
  [ -z "$left" ] || fail unproven "steps of the run may still run:$left"
}

succeed() { # under the lock, in a subshell. A run's steps come one after another: what is left of earlier ones ends
  run=${KEY%%.*} order=${KEY#*.}
  [ "$run" != "$KEY" ] || return 0
  [ ! -e "$RUNS/${run}_quit" ] || fail overtaken "the run of $KEY has been ended"
  case $order in *[!0-9.]*) ;; *) refuse_overtaken ;; esac
  end_all "$run." $((TOKEN + 1)) "$KEY"
  [ -z "$left" ] || fail unproven "earlier steps of the run may still run:$left"
}

refuse_overtaken() { # a start that was held up, while its successor has begun
  for file in "$RUNS/$run".*_st; do
    other=${file##*/"$run".} other=${other%_st}
    case $other in *[!0-9.]*) continue ;; esac
    [ "${other%%.*}" -le "${order%%.*}" ] || fail overtaken "step $run.$other has begun after $KEY"
    [ "${other%%.*}" -lt "${order%%.*}" ] || [ "${other#*.}" -le "${order#*.}" ] ||
      fail overtaken "attempt $run.$other has begun after $KEY"
  done
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
  end_all "" "$TOKEN" ""
  [ -z "$left" ] || fail unproven "steps of an earlier holder may still run:$left"
  rm -f "$BASE/raising"
}

# ---- clean-up ------------------------------------------------------------------------------------------

forget() { # LOCK_FILE: remove what is kept of a step, unless it runs or may still run
  K=${1%_lock} KEY=${1##*/} KEY=${KEY%_lock} forgotten=1
  [ -e "$1" ] || return
  group
  exec 9>> "$1"
  # A service that a step left running keeps the step's story: without one it would count as a stray.
  if try_lock 9 && state && settled && { [ ! -d "$G" ] || rmdir "$G" 2>/dev/null; }; then
    rm -rf "${K}"_*
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
  rm -f "$RUNS"/*_quit
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

