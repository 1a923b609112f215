#!/usr/bin/env bash
# tools/manual.sh PROGRAM FOLDER: writes manual pages (man1/) and shell completions (bash/kiln,
# zsh/_kiln, fish/kiln.fish) into FOLDER. Everything comes from the program's own help, which comes
# from the schema: nothing here names a verb or a flag. Run by the build.
set -eu
program=$1 folder=$2
mkdir -p "$folder/man1" "$folder/bash" "$folder/zsh" "$folder/fish"
version=$("$program" --version)
version=${version#kiln }
verbs=$("$program" --help | awk '/^Verbs:/ { on = 1; next } on && !/^ / { exit } on { print $1 }')

# Help as troff: a line that begins in column 0 and ends in ':' is a heading, what stands after two
# or more blanks behind a flag or a name explains it, other text is a paragraph.
page() { # NAME SENTENCE
  awk -v name="$1" -v sentence="$2" -v version="$version" '
    function plain(s) { # a line that begins with a dot or a quote would be a request
      gsub(/\\/, "\\e", s)
      gsub(/-/, "\\-", s)
      return s ~ /^[.\047]/ ? "\\&" s : s
    }
    BEGIN {
      upper = toupper(name)
      printf ".TH \"%s\" 1 \"\" \"kiln %s\"\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n", plain(upper), \
        version, plain(name), plain(sentence)
    }
    /^usage: / { print ".B " plain(substr($0, 8)); print ".SH DESCRIPTION"; getline; next }
    /^[^ ].*:$/ { print ".SH " plain(toupper(substr($0, 1, length($0) - 1))); next }
    /^$/ { print ".PP"; next }
    /^  [^ ]/ {
      line = substr($0, 3); cut = match(line, /   *[^ ]/)
      print ".TP"
      if (cut) { print ".B " plain(substr(line, 1, cut - 1)); line = substr(line, cut)
                 sub(/^ */, "", line); print plain(line) }
      else print ".B " plain(line)
      next
    }
    { sub(/^ +/, ""); print plain($0) }' | sed -e '/^\.PP$/{N;s/^\.PP\n\(\.SH\)/\1/}'
}

sentence_of() { "$program" --help | sed -n "s/^  $1  *//p" | head -n 1; }

"$program" --help | page kiln "generates, compiles and runs attention kernels" \
  >"$folder/man1/kiln.1"
for verb in $verbs; do
  "$program" "$verb" --help | page "kiln-$verb" "$(sentence_of "$verb")" \
    >"$folder/man1/kiln-$verb.1"
done

# "FLAG<tab>VALUE ..." of a verb: its flags, with the legal values where help lists them all.
flags_of() {
  "$program" "$1" --help | awk '
    /^  -/ { if (flag) print flag "\t" values; flag = $1; values = "" }
    /^ +legal: / && !/\.\.\./ {
      sub(/^ +legal: /, ""); sub(/;.*/, ""); gsub(/,/, ""); values = $0
    }
    END { if (flag) print flag "\t" values }'
}

# The words that stand first behind a verb: those between the bars of its usage.
commands_of() {
  "$program" "$1" --help | awk '/^usage: / {
    count = split(substr($0, length("usage: kiln " $3) + 2), parts, / \| /)
    for (i = 1; i <= count; i++) {
      split(parts[i], words, / /)
      if (words[1] ~ /^[a-z]+$/) printf "%s ", words[1]
    }
  }'
}

{
  echo "# bash completion for kiln $version"
  echo '_kiln() {'
  echo '  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}'
  echo '  local verb=${COMP_WORDS[1]} words='
  echo '  if [ "$COMP_CWORD" = 1 ]; then'
  echo "    words='$(echo $verbs) --help --version'"
  echo '  else'
  echo '    case $verb:$before in'
  for verb in $verbs; do
    flags_of "$verb" | while IFS=$'\t' read -r flag values; do
      [ -z "$values" ] || echo "    $verb:$flag) words='$values' ;;"
    done
  done
  for verb in $verbs; do
    echo "    $verb:*) words='$(commands_of "$verb")$(flags_of "$verb" | cut -f1 | tr '\n' ' ')' ;;"
  done
  echo '    esac'
  echo '  fi'
  echo '  COMPREPLY=($(compgen -W "$words" -- "$word"))'
  echo '}'
  echo 'complete -o default -F _kiln kiln'
} >"$folder/bash/kiln"

{
  echo "#compdef kiln"
  echo "# zsh completion for kiln $version"
  echo '_kiln() {'
  echo '  local -a found'
  echo '  if (( CURRENT == 2 )); then'
  echo "    found=($(echo $verbs) --help --version)"
  echo '  else'
  echo '    case $words[2] in'
  for verb in $verbs; do
    echo "    $verb) found=($(commands_of "$verb")$(flags_of "$verb" | cut -f1 | tr '\n' ' ')) ;;"
  done
  echo '    esac'
  echo '  fi'
  echo '  compadd -a found'
  echo '  _files'
  echo '}'
  echo '_kiln "$@"'
} >"$folder/zsh/_kiln"

{
  echo "# fish completion for kiln $version"
  for verb in $verbs; do
    echo "complete -c kiln -n __fish_use_subcommand -a $verb -d '$(sentence_of "$verb" |
      sed "s/'/\\\\'/g")'"
    for word in $(commands_of "$verb"); do
      echo "complete -c kiln -n '__fish_seen_subcommand_from $verb' -a $word"
    done
    flags_of "$verb" | while IFS=$'\t' read -r flag values; do
      name=${flag##-}
      name=${name#-}
      kind=l
      [ "${#name}" -gt 1 ] || kind=s
      echo "complete -c kiln -n '__fish_seen_subcommand_from $verb' -$kind $name" \
        "${values:+-x -a '$values'}"
    done
  done
} | sed 's/ *$//' >"$folder/fish/kiln.fish"
