//! The page of metrics: what the parts of the gateway have counted, in the words of docs/metrics.md.
//!
//! Made again for each scrape from counts that are there in any case. A label has one of a few words; none is made of
//! what a caller, a policy or a file says.

use std::{
    fmt,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text::encode},
    metrics::MetricType,
    registry::Registry,
};

use super::super::{admission::Admission, adoption::QuarantineList, quarantine::QuarantineKind};
use crate::{
    approval::ApprovalStatus,
    counters::{BUCKETS_US, CounterVec, Histogram, Label},
    journal::Health,
    session::Sessions,
    terminal::Terminals,
};

/// What every name begins with.
const PREFIX: &str = "provost";

/// The page.
#[derive(Debug)]
pub(crate) struct Exposition(Registry);

impl Exposition {
    pub(in super::super) fn new(
        terminals: Arc<Terminals>,
        sessions: Arc<Sessions>,
        admission: Arc<Admission>,
        quarantined: Arc<QuarantineList>,
    ) -> Self {
        let mut registry = Registry::with_prefix(PREFIX);
        let started_at_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        registry.register_collector(Box::new(GatewayCollector {
            terminals,
            sessions,
            admission,
            quarantined,
            started_at_s,
        }));
        Self(registry)
    }

    /// As it is now.
    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::with_capacity(32 << 10);
        encode(&mut text, &self.0)?;
        Ok(text)
    }
}

#[derive(Debug)]
struct GatewayCollector {
    terminals: Arc<Terminals>,
    sessions: Arc<Sessions>,
    admission: Arc<Admission>,
    quarantined: Arc<QuarantineList>,
    started_at_s: f64,
}

impl Collector for GatewayCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = MetricWriter(encoder);
        self.gateway(&mut page)?;
        self.admission(&mut page)?;
        self.policy(&mut page)?;
        self.sessions(&mut page)?;
        self.terminals(&mut page)?;
        self.approvals(&mut page)?;
        self.sandboxes(&mut page)?;
        self.journal(&mut page)
    }
}

impl GatewayCollector {
    fn gateway(&self, page: &mut MetricWriter<'_>) -> fmt::Result {
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        let about = "The program that serves; always 1";
        let mut build = page.family("build_info", about, MetricType::Gauge)?;
        build.encode_family(&version)?.encode_gauge(&1_u64)?;
        page.gauge("start_time_seconds", "When it began to serve, in seconds since 1970", self.started_at_s)?;
        let is_draining = self.terminals.is_draining();
        let about = "Whether commands are started: it is not ending, and the journal takes records";
        page.gauge("ready", about, f64::from(u8::from(self.is_journaling() && !is_draining)))?;
        page.gauge("draining", "Whether it is ending", f64::from(u8::from(is_draining)))
    }

    fn admission(&self, page: &mut MetricWriter<'_>) -> fmt::Result {
        let counters = &self.admission.counters;
        page.gauge("connections", "Connections that are open", self.admission.open() as f64)?;
        let about = "Connections that were closed before anything was served on them, by reason";
        page.labelled_counters("connections_refused", about, "reason", &counters.connections)?;
        let about = "Calls that were refused before their request was looked at, by reason";
        page.labelled_counters("calls_refused", about, "reason", &counters.calls)?;
        let about = "Times that a connection waited, as the frames of its user came too fast";
        page.counter("connections_throttled", about, counters.throttled.read())
    }

    fn policy(&self, page: &mut MetricWriter<'_>) -> fmt::Result {
        let policy = self.terminals.policy();
        let loading = policy.load_status();
        let generation = policy.current().generation();
        page.gauge("policy_generation", "Of the policy in force; the first has 1", generation as f64)?;
        let about = "When the policy in force was loaded, in seconds since 1970";
        page.gauge("policy_loaded_timestamp_seconds", about, loading.loaded_at_unix_ms as f64 / 1e3)?;
        let about = "Whether the last load was refused: the files are not what is in force";
        page.gauge("policy_refused", about, f64::from(u8::from(loading.last_failure.is_some())))?;
        let results =
            [("taken", loading.loads), ("unchanged", loading.unchanged), ("refused", loading.failed)];
        page.counters("policy_loads", "Loads of the policy, by what came of them", "result", results)?;
        let decisions = &self.terminals.counters().decisions;
        page.labelled_counters("policy_decisions", "What policy said of commands", "decision", decisions)
    }

    fn sessions(&self, page: &mut MetricWriter<'_>) -> fmt::Result {
        let counters = self.terminals.counters();
        page.gauge("sessions", "Sessions that are open", self.sessions.count() as f64)?;
        page.counter("sessions_opened", "Sessions that were opened", counters.sessions_opened.read())?;
        let about = "Sessions that were not opened, by reason";
        page.labelled_counters("sessions_refused", about, "reason", &counters.session_refusals)?;
        let about = "Sessions that have ended, by what ended them";
        page.labelled_counters("sessions_closed", about, "cause", &counters.sessions_closed)
    }

    fn terminals(&self, page: &mut MetricWriter<'_>) -> fmt::Result {
        let counters = self.terminals.counters();
        let counts = self.terminals.quotas().total_usage();
        page.gauge("terminals_live", "Terminals whose command runs or is being started", counts.live.into())?;
        page.gauge("terminals_retained", "Terminals that are not released", counts.retained.into())?;
        let about = "Bytes of output that terminals may retain, together";
        page.gauge("output_reserved_bytes", about, counts.bytes as f64)?;
        page.counter("terminals_created", "Commands that were permitted", counters.created.read())?;
        page.counter("terminals_started", "Commands that were started", counters.started.read())?;
        let about = "Terminals that were adopted from the gateway before";
        page.counter("terminals_adopted", about, counters.adopted.read())?;
        let about = "Requests for a command that came to none, by the reason of their status";
        page.labelled_counters("terminals_refused", about, "reason", &counters.create_refusals)?;
        page.labelled_counters(
            "quota_refusals",
            "What a bound refused, by bound",
            "limit",
            &counters.limits_reached,
        )?;
        page.labelled_counters(
            "terminals_ended",
            "Commands that have ended, by cause",
            "cause",
            &counters.ended,
        )?;
        let execs = [
            ("allow", counters.execs_allowed.read()),
            ("ask", counters.execs_asked.read()),
            ("deny", counters.execs_denied.read()),
        ];
        let about = "Execs within commands, by what policy said of them";
        page.counters("execs", about, "decision", execs)?;
        let connections =
            [("allow", counters.connections_allowed.read()), ("deny", counters.connections_denied.read())];
        let about = "Connections through the proxies of sandboxes, by what policy said of them";
        page.counters("proxied_connections", about, "decision", connections)?;
        let bytes = [
            ("from_command", counters.connection_bytes_sent.read()),
            ("to_command", counters.connection_bytes_received.read()),
        ];
        let about = "Bytes of such connections that have ended";
        page.counters("proxied_bytes", about, "direction", bytes)?;
        let about = "Commands of which something had to be killed: it did not end by TERM in its grace";
        page.counter("terminals_force_killed", about, counters.force_killed.read())?;
        let about = "Processes, other than main ones, that had to be killed";
        page.counter("stragglers_killed", about, counters.stragglers_killed.read())?;
        let about = "Processes that outlived their command's end";
        page.counter("survivors", about, counters.survivors.read())?;
        page.counter("terminals_released", "Terminals that were released", counters.released.read())?;
        let about = "Of those, by the gateway, because nobody else did in time";
        page.counter("terminals_collected", about, counters.collected.read())?;
        let about = "Bytes that commands had written by their end";
        page.counter("output_bytes", about, counters.output_bytes.read())?;
        let steps = &counters.timings;
        let about = "How long the steps of starting a command took; whole: where nobody was asked";
        page.histograms(
            "create_seconds",
            about,
            "step",
            [
                ("judge", &steps.judge),
                ("sandbox", &steps.sandbox),
                ("record", &steps.record),
                ("spawn", &steps.spawn),
                ("whole", &steps.whole),
            ],
        )
    }

    fn approvals(&self, page: &mut MetricWriter<'_>) -> fmt::Result {
        let store = self.terminals.approvals();
        page.gauge("approvals_pending", "Questions that wait for a person", store.pending_count() as f64)?;
        page.counter(
            "approvals_asked",
            "Questions that were put",
            store.counters().get(ApprovalStatus::Pending),
        )?;
        let resolved = store.counters().read().filter(|(state, _)| *state != ApprovalStatus::Pending.label());
        page.counters("approvals_resolved", "Questions by what has become of them", "state", resolved)
    }

    fn sandboxes(&self, page: &mut MetricWriter<'_>) -> fmt::Result {
        let counters = &self.terminals.launch_context().counters;
        page.gauge("sandboxes", "Sandboxes that are up", counters.alive() as f64)?;
        page.counter("sandboxes_launched", "Sandboxes that were launched", counters.launched.read())?;
        let about = "Sandboxes that could not be launched, or did not answer";
        page.counter("sandboxes_failed", about, counters.failed.read())?;
        let about = "Sandboxes that were adopted from the gateway before";
        page.counter("sandboxes_adopted", about, counters.adopted.read())?;
        let about = "Sandboxes that ended before they were ended, and their commands with them";
        page.counter("sandboxes_lost", about, counters.lost.read())?;
        page.counter("gates_lost", "Sandboxes whose gate was lost", counters.gates_lost.read())?;
        let about = "What this gateway could not adopt, and left as it was";
        let mut quarantined = page.family("quarantined", about, MetricType::Gauge)?;
        quarantined
            .encode_family(&[("kind", "sandbox")])?
            .encode_gauge(&self.quarantined.count(QuarantineKind::Sandbox))?;
        quarantined
            .encode_family(&[("kind", "session")])?
            .encode_gauge(&self.quarantined.count(QuarantineKind::Session))
    }

    fn is_journaling(&self) -> bool {
        let journal = self.terminals.recorder().journal();
        journal.is_none_or(|journal| matches!(journal.health(), Health::Writable))
    }

    fn journal(&self, page: &mut MetricWriter<'_>) -> fmt::Result {
        let Some(journal) = self.terminals.recorder().journal() else { return Ok(()) };
        let counters = journal.counters();
        let about = "Whether the journal takes records; if not, no command is started";
        page.gauge("journal_writable", about, f64::from(u8::from(self.is_journaling())))?;
        page.counter("journal_records", "Records that were written", counters.records.read())?;
        page.counter("journal_bytes", "Bytes that were written", counters.bytes.read())?;
        let about = "Records that were not written, and were refused or counted instead";
        page.counter("journal_records_unwritten", about, counters.unwritten.read())?;
        let about = "Groups of records that the disk did not take";
        page.counter("journal_write_failures", about, counters.write_failures.read())?;
        let about = "Times that the disk did not make records durable";
        page.counter("journal_sync_failures", about, counters.sync_failures.read())?;
        page.counter("journal_rotations", "Files that were begun after the first", counters.rotations.read())
    }
}

/// Writes families, each with its help.
struct MetricWriter<'a>(DescriptorEncoder<'a>);

impl MetricWriter<'_> {
    fn family<'s>(
        &'s mut self,
        name: &'s str,
        help: &str,
        kind: MetricType,
    ) -> Result<MetricEncoder<'s>, fmt::Error> {
        self.0.encode_descriptor(name, help, None, kind)
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.family(name, help, MetricType::Gauge)?.encode_gauge(&value)
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.family(name, help, MetricType::Counter)?.encode_counter::<NoLabelSet, u64, u64>(&value, None)
    }

    fn counters(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'static str, u64)>,
    ) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Counter)?;
        for (label_value, value) in values {
            family
                .encode_family(&[(label, label_value)])?
                .encode_counter::<NoLabelSet, u64, u64>(&value, None)?;
        }
        Ok(())
    }

    fn labelled_counters<W: Label>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        counters: &CounterVec<W>,
    ) -> fmt::Result {
        self.counters(name, help, label, counters.read())
    }

    fn histograms<'t>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        all: impl IntoIterator<Item = (&'static str, &'t Histogram)>,
    ) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Histogram)?;
        let bounds = BUCKETS_US.iter().map(|bound| *bound as f64 / 1e6).chain([f64::INFINITY]);
        for (label_value, times) in all {
            let snapshot = times.read();
            let buckets: Vec<(f64, u64)> = bounds.clone().zip(snapshot.counts).collect();
            let count = snapshot.counts.iter().sum();
            family.encode_family(&[(label, label_value)])?.encode_histogram::<NoLabelSet>(
                snapshot.sum.as_secs_f64(),
                count,
                &buckets,
                None,
            )?;
        }
        Ok(())
    }
}
