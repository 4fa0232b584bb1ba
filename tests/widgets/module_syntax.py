"""Whether texts are modules of JavaScript: one Node is asked of all of them, as each start of it costs more
than all that it reads."""

import json
import subprocess

_PROGRAM = """
const { SourceTextModule } = require("vm");
const wrong = {};
for (const [name, text] of Object.entries(JSON.parse(require("fs").readFileSync(0, "utf8")))) {
    try {
        new SourceTextModule(text, { identifier: name });
    } catch (error) {
        wrong[name] = error.stack;
    }
}
console.log(JSON.stringify(wrong));
"""


def syntax_errors(texts):
    """What is wrong, by the name of the text."""
    command = ["node", "--no-warnings", "--experimental-vm-modules", "-e", _PROGRAM]
    done = subprocess.run(
        command, input=json.dumps(texts), capture_output=True, text=True, timeout=60, check=True
    )
    return json.loads(done.stdout)
