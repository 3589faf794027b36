"""``python -m attention_doctor``."""

import sys

from attention_doctor.command import main

sys.exit(main())
