"""The agent as a child of its supervisor: the reason of its end becomes an exit code."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

from otel_rl.agent.__main__ import CANNOT_START, CRASHED, DONE, INCOMPLETE, NOT_NEEDED
from otel_rl.agent.process import GoneError, StartError, log_to_stderr, run_agent

if TYPE_CHECKING:
    from otel_rl.setup.directory import RunDirectory

logger = logging.getLogger("otel_rl.agent")


def work(directory: RunDirectory) -> int:
    """Run the agent of a run directory; return the exit code."""
    log_to_stderr()
    try:
        code = DONE if run_agent(directory) else INCOMPLETE
    except BlockingIOError:
        logger.info("another agent runs in %s", directory.path)
        code = NOT_NEEDED
    except (StartError, FileNotFoundError, ValueError) as error:
        logger.error("the agent cannot start: %s", error)
        code = CANNOT_START
    except GoneError as error:
        logger.error("the agent ends: %s", error)
        code = CRASHED
    except Exception:
        logger.exception("the agent failed")
        code = CRASHED
    logging.shutdown()
    sys.stdout.flush()
    return code
