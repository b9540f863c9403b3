//! The metrics of a real gateway, as a scraper sees them, and as a stranger tries to abuse them.

mod counted;
mod hostile;
mod journal;
mod page;
mod scrape;

use crate::journaled::disk;
