"""Recomputes an action's digests from one line of `undersign audit export`, without any code of undersign.

RFC 8785 for what subjects hold here: strings, objects, lists, booleans, null and integers (a subject with a fraction is
refused, not guessed at).
"""

import hashlib
import json
import sys


def canonical(value):
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int):
        assert abs(value) < 2**53
        return str(value)
    if isinstance(value, list):
        return "[" + ",".join(canonical(item) for item in value) + "]"
    assert isinstance(value, dict), type(value)
    names = sorted(value, key=lambda name: name.encode("utf-16-be"))
    return "{" + ",".join(canonical(name) + ":" + canonical(value[name]) for name in names) + "}"


def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).hexdigest()


event = json.loads(sys.argv[1])
subject = event["action_subject"]
content = {name: subject[name] for name in ("tenant", "agent", "upstream", "tool", "arguments")}
content["undersign"] = "content/1"
erasable = {name: event[name] for name in ("action_subject", "facts", "preview")}
print(
    json.dumps(
        {
            "action_digest": sha256(canonical(subject).encode()),
            "content_digest": sha256(canonical(content).encode()),
            "commitment": sha256(bytes.fromhex(event["salt"]), canonical(erasable).encode()),
        }
    )
)
