//! What holds commands: confinement, kills, workspaces, and what hostile commands and callers try, as root and as an ordinary user.

use provost_test_support as support;

support::test_program!();

mod confinement;
mod escalation;
mod hostile;
mod rootless;
mod swapped;
mod tools;
mod workspace;
