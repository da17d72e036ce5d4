#!/usr/bin/env bash
# Which functions of the broker do 200 simulated lives never enter? Compares them with never-entered.txt, where each has a reason.
# It builds everything once more, for measuring, and plays slowly: so it is no step of a usual run. It needs: rustup component add
# llvm-tools
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=$(dirname "$(find "$(rustc --print sysroot)" -name llvm-profdata | head -1)")
if [ ! -x "$tools/llvm-profdata" ]; then
  echo 'llvm-profdata is missing: rustup component add llvm-tools' >&2
  exit 2
fi
target=${CARGO_TARGET_DIR:-target}/coverage
case $target in /*) ;; *) target=$PWD/$target ;; esac
mkdir -p "$target"
rm -f "$target"/*.profraw
# What is run while building writes its measurements too: they go the same way, and nowhere into the sources.
export LLVM_PROFILE_FILE="$target/build-%p.profraw"
built=$(RUSTFLAGS='-C instrument-coverage' cargo test --profile ci -p mortarmq-sim --test seeds --locked --target-dir "$target" \
  --no-run --message-format=json | sed -n 's/.*"executable":"\([^"]*\/seeds-[^"]*\)".*/\1/p' | tail -1)
rm -f "$target"/*.profraw
MORTARMQ_SIM_SEEDS=1..201 LLVM_PROFILE_FILE="$target/%p.profraw" "$built" every_promise
unset LLVM_PROFILE_FILE
"$tools/llvm-profdata" merge -sparse "$target"/*.profraw -o "$target/seeds.profdata"
sources=()
for crate in node shard delivery replica storage; do sources+=("$PWD/crates/$crate/src"); done
"$tools/llvm-cov" export -format=text -instr-profile="$target/seeds.profdata" "$built" "${sources[@]}" |
  cargo run --quiet --profile ci -p mortarmq-sim --locked --example never_entered -- crates/sim/never-entered.txt
