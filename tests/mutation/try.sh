#!/bin/sh
# try.sh FOLDER KERNEL MUTANT TEMPLATES: runs one mutant of a kernel, rendered from
# FOLDER/TEMPLATES, through the runs of FOLDER/KERNEL.runs until one ends badly. Prints one line:
# the job, a tab, and `survived N runs` or the run that noticed and what it said. Called by
# bench.lua.
folder=$1 kernel=$2 mutant=$3 templates=$4
export MUTANT="$mutant" KILN_TEMPLATE_DIR="$folder/$templates"
repair=$(cat "$KILN_TEMPLATE_DIR/repair")
count=0
while read -r passes flags; do
  count=$((count + 1))
  also=-1
  [ "$passes" = once ] && also=$repair
  # shellcheck disable=SC2086 # a list of flags
  said=$(ALSO=$also timeout 20 "$KILN" run --device emu --check $flags 2>&1 >/dev/null </dev/null)
  rc=$?
  if [ $rc != 0 ]; then
    said=$(printf '%s' "$said" | tr '\n\t' '  ' | cut -c 1-600)
    [ $rc = 124 ] && said="no end within 20 s"
    printf '%s\trun %d, exit %d: %s\n' "$kernel $mutant $templates" $count $rc "$said"
    exit 0
  fi
done <"$folder/$kernel.runs"
printf '%s\tsurvived %d runs\n' "$kernel $mutant $templates" $count
