#!/bin/sh
# try.sh FOLDER KERNEL MUTANT TEMPLATES: runs one mutant of a kernel, rendered from
# FOLDER/TEMPLATES, through the runs of FOLDER/KERNEL.runs until one ends badly. A line there:
# `once` (without the sites of TEMPLATES/repair), `whole` or `same` (all dq of a problem have the
# same bits), the problem, flags. Prints one line: the job, a tab, and `survived N runs` or the run
# that noticed and what it said. Called by bench.lua.
folder=$1 kernel=$2 mutant=$3 templates=$4
export MUTANT="$mutant" KILN_TEMPLATE_DIR="$folder/$templates"
repair=$(cat "$KILN_TEMPLATE_DIR/repair")
count=0
dq=$(mktemp -d "$folder/dq.XXXXXX")
notice() {
  rm -r "$dq"
  printf '%s\trun %d, %s\n' "$kernel $mutant $templates" $count "$1"
  exit 0
}
while read -r kind problem flags; do
  count=$((count + 1))
  also=-1
  [ "$kind" = once ] && also=$repair
  [ "$kind" = same ] && flags="$flags --dq $dq/now"
  # shellcheck disable=SC2086,SC3045 # a list of flags; dash and bash have ulimit -t
  said=$(ulimit -t 20
    ALSO=$also timeout 200 "$KILN" run --device emu --check $flags 2>&1 >/dev/null </dev/null)
  rc=$?
  if [ $rc != 0 ]; then
    said=$(printf '%s' "$said" | tr '\n\t' '  ' | cut -c 1-600)
    case $rc in 124 | 137 | 152) said="no end within 20 s of processor time, or 200 s" ;; esac
    notice "exit $rc: $said"
  fi
  if [ "$kind" = same ] && [ -f "$dq/$problem" ]; then
    cmp -s "$dq/now" "$dq/$problem" || notice "dq has other bits than under another schedule"
  elif [ "$kind" = same ]; then
    mv "$dq/now" "$dq/$problem"
  fi
done <"$folder/$kernel.runs"
rm -r "$dq"
printf '%s\tsurvived %d runs\n' "$kernel $mutant $templates" $count
