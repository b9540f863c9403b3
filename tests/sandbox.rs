//! What holds commands: confinement, kills, workspaces, and what hostile commands and callers try, as root and as an ordinary user.

mod support;

mod confinement;
mod escalation;
mod hostile;
mod rootless;
mod swapped;
mod tools;
mod workspace;
