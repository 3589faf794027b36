"""``python -m annotated_attention.doctor`` says how the doctor is called now."""

import shlex
import sys

if __name__ == "__main__":
    command = shlex.join(["python", "-m", "attention_doctor", *sys.argv[1:]])
    print(f"The doctor is a package of its own. Call it so:\n{command}", file=sys.stderr)
    sys.exit(2)
