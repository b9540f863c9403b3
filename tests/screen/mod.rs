//! The screen process: what it shows, compared with tmux; what it survives; what it cannot do.

mod api;
mod cases;
mod confinement;
mod fuzz;
mod harness;
mod life;
mod primary;
mod tmux;
mod vttest;
