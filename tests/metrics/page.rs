//! docs/metrics.md names each metric that is served, with its labels, and no other.

use std::collections::BTreeSet;

use crate::{
    metrics::scrape::{gateway, scrape},
    support::Options,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_page_in_the_documentation_is_the_page_that_is_served() {
    let (_gateway, at) = gateway(Options::default()).await;
    let served: BTreeSet<String> = scrape(at).await.names().map(family).collect();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `provost_")?.split('`').next());
    let documented: BTreeSet<String> = rows.map(|name| format!("provost_{name}")).collect();
    assert_eq!(served, documented);
}

/// The name with its labels' names: `a{b="c"}` is `a{b}`, and a histogram's samples are of one family.
fn family(sample: &str) -> String {
    let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
    let name = ["_bucket", "_sum", "_count"]
        .iter()
        .find_map(|part| name.strip_suffix(part).filter(|name| name.ends_with("_seconds")))
        .unwrap_or(name);
    let labels: Vec<&str> = labels
        .trim_end_matches('}')
        .split(',')
        .filter_map(|label| label.split_once('=').map(|(label, _)| label))
        .filter(|label| *label != "le")
        .collect();
    if labels.is_empty() { name.to_owned() } else { format!("{name}{{{}}}", labels.join(",")) }
}
