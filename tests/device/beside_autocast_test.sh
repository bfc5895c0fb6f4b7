#!/usr/bin/env bash
# beside_autocast.py over what the CPU reference's gate prints of the golden state, and over documents that are wrong.
# usage: beside_autocast_test.sh PROGRAM TEST_DATA
set -u
here=$(cd "$(dirname "$0")" && pwd)
program=$1 data=$2
. "$here/../in_folder.sh"
beside() { python3 "$here/beside_autocast.py" "$@" >"$folder/said" 2>&1; }
"$program" gate --trainer reference --checkpoint "$data/golden/tiny.bin" --state "$data/golden/tiny_debug_state.bin" --json >"$folder/gate.json" || complain "the gate exits $?"
# autocast JSON whose errors are the gate's divided by $1, but that of fcw by $2
autocast() {
  python3 - "$folder/gate.json" "$1" "$2" >"$folder/autocast.json" <<'P'
import json, sys
checks = [c for r in json.load(open(sys.argv[1]))["reports"][:1] for c in r["checks"] if c["tensor"] not in ("logits", "loss")]
error = lambda c: next(m["error"] for m in c.get("measures", [{"unit": "norm", "error": c["error"]}]) if m["unit"] == "norm")
json.dump({"torch": "0", "device": "none", "gradients": {c["tensor"]: {"rel_l2": error(c) / float(sys.argv[3 if c["tensor"] == "fcw" else 2]), "cosine": 1} for c in checks}}, sys.stdout)
P
}
one() { python3 - "$folder/gate.json" "$folder/one.json" "$1" <<'P'
import json, sys
document = json.load(open(sys.argv[1]))
report = document["reports"][-1]
exec(sys.argv[3])
document["reports"] = [report]
json.dump(document, open(sys.argv[2], "w"))
P
}
one "pass"
autocast 1.4 1.4
beside "$folder/autocast.json" "$folder/one.json" || complain "1.4 exits $?: $(cat "$folder/said")"
[ "$(grep -cE '^\| [a-z0-9]+ \| 1.40 ' "$folder/said")" = 16 ] || complain "not 16 tensors of 1.40: $(cat "$folder/said")"
grep -q "16 tensors, none above 1.5" "$folder/said" || complain "no sum: $(tail -n 1 "$folder/said")"
beside "$folder/autocast.json" "$folder/one.json" --limit 1.3
[ $? = 1 ] || complain "1.4 is within 1.3"
autocast 1.4 1.6
beside "$folder/autocast.json" "$folder/one.json"
[ $? = 1 ] && grep -q "above 1.5: fcw" "$folder/said" || complain "1.6 of fcw: $(tail -n 1 "$folder/said")"
one 'next(c for c in report["checks"] if c["tensor"] == "wte")["measures"][0]["error"] = "nan"'
autocast 1.4 1.4
beside "$folder/autocast.json" "$folder/one.json"
[ $? = 1 ] && grep -q "above 1.5: wte" "$folder/said" || complain "a NaN of wte: $(tail -n 1 "$folder/said")"
one 'report["checks"] = [c for c in report["checks"] if c["tensor"] != "lnfb"]'
beside "$folder/autocast.json" "$folder/one.json"
[ $? = 2 ] && grep -q "different tensors: lnfb" "$folder/said" || complain "without lnfb: $(cat "$folder/said")"
one 'report["checks"] *= 2'
beside "$folder/autocast.json" "$folder/one.json"
[ $? = 2 ] || complain "every tensor twice does not exit 2"
for wrong in "$folder/none" "$folder/autocast.json" "$here/beside_autocast.py"; do
  beside "$folder/autocast.json" "$wrong"
  [ $? = 2 ] && ! grep -q Traceback "$folder/said" || complain "$wrong as the gate's: $(cat "$folder/said")"
  beside "${wrong/autocast.json/gate.json}" "$folder/one.json"
  [ $? = 2 ] && ! grep -q Traceback "$folder/said" || complain "$wrong as autocast's: $(cat "$folder/said")"
done
exit $problems
