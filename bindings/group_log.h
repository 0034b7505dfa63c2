// The line that a new group says in the log, whichever way it was made. Included by the other bindings only.
#pragma once

#include "engine/communicator.h"

namespace collectives {

/// Tells collectives.log (Python) what a group that was just made runs on. With or without the GIL.
void log_group(const Communicator& communicator);

} // namespace collectives
