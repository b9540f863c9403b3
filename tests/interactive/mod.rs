//! Commands in pseudo-terminals, driven as a person at a keyboard would drive them.

mod attach;
mod comes_back;
mod command_line;
mod kept_approvals;
mod kept_fish;
mod kept_settings;
mod kept_shell;
mod keyboard;
mod nightly;
mod own_terminal;
mod programs;
mod pty;
mod shell_line;
mod window;
