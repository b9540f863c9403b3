"""Runs what lines of JSON name through the SDK for Python, as a user: `sdk.py UID ADDRESS WORKSPACE`."""

import base64
import encodings.ascii  # Read while this may still look where the libraries lie.
import json
import os
import sys

import provost

user = int(sys.argv[1])
if os.getuid() != user:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)

with provost.Gateway(sys.argv[2]) as gateway, gateway.open_session([sys.argv[3]]) as session:
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        words = [base64.b64decode(word) for word in json.loads(line)]
        try:
            result = session.run(*words, split=True)
            said = f"{result.stderr.decode()}{result.outcome}{result.outcome.message}"
            told = [result.exit_code, base64.b64encode(result.output).decode(), said]
        except provost.ProvostError as error:
            told = [None, "", f"{type(error).__name__}: {error}"]
        print(json.dumps(told), flush=True)
