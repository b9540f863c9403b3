//! Escape from kill: whatever a command does to outlive its end, it and all that it made are gone afterwards.

mod escapes;
mod grace;
mod hung;
mod orphans;
mod owners;
mod states;
mod supervisor;
