"""`python -m otel_rl.agent RUN_DIR`: how a trainer starts its agent."""

import logging
import os
import sys
from pathlib import Path

from otel_rl.agent.process import log_to_stderr, run_agent

if __name__ == "__main__":
    log_to_stderr()
    try:
        complete = run_agent(Path(sys.argv[1]))
    except Exception:
        logging.getLogger("otel_rl.agent").exception("the agent cannot run")
        complete = False
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0 if complete else 1)  # a destination that hangs must not keep the process
