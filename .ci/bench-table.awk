# Prints the results of all benchmarks as one table: awk -f bench-table.awk target/bench/*.json
# Each file is a pretty-printed array of {"name", "ratio", "better", "aim", "floor", "detail"}, with one key per line.

function text(line) {
    sub(/^[^:]*: "/, "", line)
    sub(/",?$/, "", line)
    gsub(/\\"/, "\"", line)
    return line
}

function number(line) {
    sub(/^[^:]*: /, "", line)
    sub(/,$/, "", line)
    return line + 0
}

# Whether the result is worse than `limit`.
function misses(limit) {
    return better == "higher" ? ratio < limit : ratio > limit
}

BEGIN {
    form = "%-11s %-68s %8s %-6s %7s %7s  %s\n"
    printf form, "topic", "name", "ratio", "better", "aim", "floor", "verdict"
}

/^ *"aim": / { aim = number($0) }
/^ *"floor": / { bottom = number($0) }
/^ *"ratio": / { ratio = number($0) }
/^ *"name": / { name = text($0) }
/^ *"better": / { better = text($0) }

/^ *},?$/ {
    topic = FILENAME
    sub(/.*\//, "", topic)
    sub(/\.json$/, "", topic)
    verdict = "reached"
    if (misses(aim)) { verdict = "aim missed"; aims++ }
    if (misses(bottom)) { verdict = "FLOOR MISSED"; floors++ }
    printf form, topic, name, sprintf("%.2f", ratio), better, aim, bottom, verdict
    results++
}

END {
    if (!results) { print "no results found"; exit 1 }
    # A result that misses its floor also misses its aim.
    printf "%d results: %d aims missed, %d floors missed\n", results, aims, floors
    printf "files:"
    for (i = 1; i < ARGC; i++) printf " %s", ARGV[i]
    print ""
}
