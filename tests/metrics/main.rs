//! The metrics of a real gateway, as a scraper sees them, and as a stranger tries to abuse them.

#[path = "../support/mod.rs"]
mod support;

mod counted;
#[path = "../journaled/disk.rs"]
#[allow(dead_code)]
mod disk;
mod hostile;
mod journal;
mod page;
mod scrape;
