#!/usr/bin/env bash
# A head, two nodes and a laptop on one machine: each has an address of its own in a network namespace, and
# a directory that only it sees. Usage, in user, network and mount namespaces of its own:
#
#   unshare --user --map-root-user --net --mount --pid --fork --kill-child \
#       three_machines.sh PROGRAM DIRECTORY
#
# It prints a line for each thing that it has seen, and ends with "all is well".
set -euo pipefail
corona=$1
root=$2
# The same path on each machine, and another directory.
own=$root/own
# The same directory on each machine.
shared=$root/shared
declare -A address=([alpha]=10.77.0.1 [beta]=10.77.0.2 [gamma]=10.77.0.3 [laptop]=10.77.0.4)

make_network() {
    mount -t tmpfs machines /run
    mkdir -p "$own" "$shared"
    ip link set lo up
    ip link add switch type bridge
    ip link set switch up
    local machine
    for machine in alpha beta gamma laptop; do
        mkdir -p "$root/of-$machine"
        ip netns add "$machine"
        ip link add "to-$machine" type veth peer name wire netns "$machine"
        ip link set "to-$machine" master switch up
        ip -n "$machine" link set lo up
        ip -n "$machine" addr add "${address[$machine]}/24" dev wire
        ip -n "$machine" link set wire up
    done
}

# Runs a command on a machine, in place of this shell.
become() {
    local machine=$1
    shift
    exec ip netns exec "$machine" unshare --mount bash -c \
        'mount --bind "$1" "$2" && cd "$2" && HOME=$2 XDG_CONFIG_HOME=$2/config && export HOME XDG_CONFIG_HOME &&
            shift 2 && exec "$@"' - "$root/of-$machine" "$own" "$@"
}

# Runs a command on a machine.
on() {
    (become "$@")
}

# Starts a service on a machine, and waits for its line.
declare -A services
serve() {
    local machine=$1 line=$2
    shift 2
    : >>"$root/$machine.out"
    become "$machine" "$@" >>"$root/$machine.out" 2>&1 &
    services[$machine]=$!
    await "$line of $machine" grep -q "$line" "$root/$machine.out"
}

# Ends a service as a reboot does, and waits for its end.
stop() {
    kill -TERM "${services[$1]}"
    wait "${services[$1]}" || true
    : >"$root/$1.out"
}

await() {
    local what=$1 deadline=$((SECONDS + 60))
    shift
    until "$@"; do
        ((SECONDS < deadline)) || fail "$what did not come"
        sleep 0.1
    done
}

fail() {
    echo "FAILED: $*"
    tail -n 30 "$root"/*.out "$root"/of-*/head/logs/*.log "$root"/of-*/node/logs/*.log 2>/dev/null || true
    exit 1
}

has_nodes() {
    [[ $(on laptop "$corona" nodes list --json 2>/dev/null | grep -c '"name"') -eq $1 ]]
}

# The head's line for nodes or for users.
line_for() {
    on alpha "$corona" head status --dir "$own/head" | sed -n "s/^a [a-z]*  *corona $1 //p"
}

job() {
    on laptop "$corona" job run "$@"
}

seen() {
    echo "$SECONDS s: $*"
}

make_network
SECONDS=0
serve alpha "corona head ready" "$corona" head --dir "$own/head" --host 10.77.0.1
serve beta "corona node ready" "$corona" join "$(line_for join)" --dir "$own/node" --slots 2
serve gamma "corona node ready" "$corona" join "$(line_for join)" --dir "$own/node" --slots 2
on laptop "$corona" login "$(line_for login)"
grep -q "no directory is known to be shared with the head" "$root/beta.out" || fail "beta takes its own files for the head's"
await "two nodes" has_nodes 2
seq 1 2000 >"$shared/numbers"
# The script lies on the laptop alone: it comes to the nodes through the job tracker.
printf 'sed s/^/number-/ <&0\n' >"$root/of-laptop/map.sh"
mkdir "$root/of-laptop/package"
echo "in an archive" >"$root/of-laptop/package/text"
tar -C "$root/of-laptop/package" -cf "$root/of-laptop/package.tar" text
job --input "$shared/numbers" --output "$shared/out" --split-size 2k --reduces 2 --file map.sh \
    --archive package.tar#package --mapper 'test "$(cat package/text)" = "in an archive" && sh map.sh' >"$root/job" 2>&1 ||
    fail "the first job: $(cat "$root/job")"
[[ $(cat "$shared"/out/part-* | tr -d '\t' | sort | head -1) == number-1 ]] || fail "the output of the first job"
[[ $(cat "$shared"/out/part-* | wc -l) -eq 2000 ]] || fail "the output of the first job"
seen "the first job has run"
((SECONDS < 60)) || fail "the first job took $SECONDS s from nothing"
[[ -z $(ls "$root/of-alpha/head/system") ]] || fail "files of the job are left: $(ls "$root/of-alpha/head/system")"

if job --input "$shared/numbers" --output "$own/out" --mapper cat >"$root/job" 2>&1; then
    fail "output that nobody shares was called a success"
fi
grep -q "the node 10.77.0.[23] does not see $own.*mount at the same path, or one on HDFS" "$root/job" ||
    fail "the refusal: $(cat "$root/job")"
[[ ! -e $root/of-laptop/out && ! -e $root/of-beta/out && ! -e $root/of-gamma/out ]] || fail "a refused job wrote"
seen "output that is not shared is refused"
cp "$shared/numbers" "$root/of-laptop/numbers"
cp "$shared/numbers" "$root/of-beta/numbers"
if job --input "$own/numbers" --output "$shared/out2" --mapper cat >"$root/job" 2>&1; then
    fail "a job without its input on a node was called a success"
fi
grep -q "the node 10.77.0.3 does not see $own/numbers" "$root/job" || fail "the refusal: $(cat "$root/job")"
[[ ! -e $shared/out2 ]] || fail "a refused job wrote"
seen "input that one node does not have is refused"
# Copies on all of them are as good as one that is shared.
cp "$shared/numbers" "$root/of-gamma/numbers"
job --input "$own/numbers" --output "$shared/out3" --mapper cat >"$root/job" 2>&1 ||
    fail "a job with copies of its input: $(cat "$root/job")"
[[ -z $(find "$shared" "$root"/of-*/ -maxdepth 1 -name '.corona-*') ]] || fail "markers are left"

# A list of commands needs no directory that others see.
list() {
    on laptop "$corona" run "$@"
}
kept() {
    find "$root/of-alpha/head" -path '*/outputs/*/*' | head -3
}
if list --array 1-40 --output list -- 'echo number-{}; uname >&2; test {} -ne 7' >"$root/run" 2>&1; then
    fail "a command that fails was called a success"
fi
grep -q "keeps the list and the results" "$root/run" || fail "the list: $(cat "$root/run")"
grep -q "40 commands: 39 succeeded, 1 failed, 0 without a result" "$root/run" || fail "the list: $(cat "$root/run")"
[[ $(cat "$root"/of-laptop/list/{1,7,40}.out | tr '\n' ' ') == "number-1 number-7 number-40 " ]] || fail "outputs of the list"
[[ $(cat "$root"/of-laptop/list/*.err | grep -c Linux) -eq 40 && ! -e $root/of-beta/list ]] || fail "outputs of the list"
[[ $(list --array 1-3 --keep-order -- echo {} 2>/dev/null | tr '\n' ' ') == "1 2 3 " ]] || fail "the list on stdout"
[[ -z $(kept) && -z $(ls "$root/of-alpha/head/system") ]] || fail "files of lists are left: $(kept)"
seen "a list of commands has run where nothing is shared"

# The client ends, and the head is started again, while its commands run.
become laptop "$corona" run --array 1-20 --output ended -- \
    sh -c "if [ {} -gt 3 ]; then while [ ! -e $shared/on ]; do sleep 0.1; done; fi; echo {}" >"$root/run" 2>&1 &
client=$!
is_kept() { [[ -n $(kept) ]]; }
await "the output of tasks" is_kept
kill -KILL "$client"
wait "$client" 2>/dev/null || true
stop alpha
serve alpha "corona head ready" "$corona" head --dir "$own/head"
touch "$shared/on"
list --array 1-20 --output ended --resume -- \
    sh -c "if [ {} -gt 3 ]; then while [ ! -e $shared/on ]; do sleep 0.1; done; fi; echo {}" >"$root/run" 2>&1 ||
    fail "the rest of a list: $(cat "$root/run")"
[[ $(wc -l <"$root/of-laptop/ended/results.jsonl") -eq 20 ]] || fail "results of a list that was resumed"
[[ $(cat "$root"/of-laptop/ended/*.out | sort -n | tr '\n' ' ') == "$(seq -s ' ' 20) " ]] || fail "outputs of the rest"
[[ -z $(kept) ]] || fail "outputs are left: $(kept)"
seen "a list of commands was resumed"

stop beta
await "the end of beta" has_nodes 1
serve beta "corona node ready" "$corona" join --dir "$own/node" --slots 2
await "two nodes" has_nodes 2
seen "a node was restarted"
ip -n beta addr flush dev wire
ip -n beta addr add 10.77.0.9/24 dev wire
await "the new address" grep -q "this machine is 10.77.0.9 now" "$root/beta.out"
is_moved() { has_nodes 2 && on laptop "$corona" nodes list | grep 10.77.0.9 >/dev/null; }
await "the node at its new address" is_moved
job --input "$shared/numbers" --output "$shared/out4" --split-size 2k --mapper cat >"$root/job" 2>&1 ||
    fail "a job after a change of an address: $(cat "$root/job")"
seen "a node has another address"

job --input "$shared/numbers" --output "$shared/out5" --split-size 4k --reduces 1 \
    --mapper "sh -c 'while [ ! -e $shared/go ]; do sleep 0.1; done; cat'" >"$root/job" 2>&1 &
waiting=$!
runs() { on laptop "$corona" jobs list 2>/dev/null | grep RUNNING >/dev/null; }
await "the job" runs
stop alpha
serve alpha "corona head ready" "$corona" head --dir "$own/head"
touch "$shared/go"
wait "$waiting" || fail "a job over a restart of the head: $(cat "$root/job")"
[[ $(cat "$shared"/out5/part-* | wc -l) -eq 2000 ]] || fail "the output over a restart"
on alpha "$corona" head status --dir "$own/head" | grep -q "^nodes  *2$" || fail "the status of the head"
seen "the head was restarted under a job"

# A peer without access gets nothing, and access that is taken back ends.
on laptop bash -c 'exec 3<>/dev/tcp/10.77.0.1/8889; printf "GET / HTTP/1.0\r\n\r\n" >&3; cat <&3' >"$root/plain"
grep -q " 401 " "$root/plain" || fail "a plain peer got $(cat "$root/plain")"
access=$(on alpha "$corona" access list --authority "$own/head/access" | awk '$2 == "submit" {print $1}')
on alpha "$corona" access revoke "$access" --authority "$own/head/access"
is_refused() { ! on laptop "$corona" sessions list >"$root/refused" 2>&1; }
await "the end of the access" is_refused
grep -q "revoked" "$root/refused" || fail "after the end of the access: $(cat "$root/refused")"
seen "access was taken back"

# Everything that listens for other machines is in the block of documented ports.
odd=$(for machine in alpha beta gamma; do
    ip netns exec "$machine" ss -Hltn | awk '{print $4}' | grep -v '^127\.\|^\[::1\]' | sed 's/.*://' |
        awk -v m="$machine" '$1 < 8881 || $1 > 8892 || (m != "alpha" && $1 < 8890) {print m, $1}'
done)
[[ -z $odd ]] || fail "ports outside of the block: $odd"
for machine in gamma beta alpha; do stop "$machine"; done
echo "all is well"
