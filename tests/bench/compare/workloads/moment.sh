# Writes the moment at which it runs, in seconds since 1970, to the file named.
echo "$EPOCHREALTIME" > "$1"
