//! Writes a file again, with its guards. Of nested places only the branch without a mutant is written with the inner guards: one
//! mutant is on at a time, and the text stays in proportion.

use std::{collections::BTreeMap, ops::Range};

use crate::sites::{Kind, Site};

/// Where a mutant is in the text.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// The bytes that stand for the mutant.
    pub bytes: (usize, usize),
    /// The number by which the place is recorded: the lowest of the mutants that one look at the number chooses from.
    pub site: usize,
}

/// The text, and where each mutant is in it.
pub fn render(text: &str, sites: &[Site]) -> (String, BTreeMap<usize, Place>) {
    let mut page = Page { text, sites, out: String::new(), places: BTreeMap::new() };
    page.span(0..text.len(), None);
    (page.out, page.places)
}

struct Page<'a> {
    text: &'a str,
    sites: &'a [Site],
    out: String,
    places: BTreeMap<usize, Place>,
}

impl Page<'_> {
    /// Writes a span; `around` is the place that it is the inside of.
    fn span(&mut self, span: Range<usize>, around: Option<usize>) {
        let mut at = span.start;
        for index in around.map_or(0, |index| index + 1)..self.sites.len() {
            let range = self.sites[index].range.clone();
            if range.start < at || range.end > span.end {
                continue;
            }
            self.copy(at..range.start);
            self.site(index);
            at = range.end;
        }
        self.copy(at..span.end);
    }

    fn site(&mut self, index: usize) {
        let (text, sites) = (self.text, self.sites);
        let site = &sites[index];
        match &site.kind {
            Kind::Returns(values) => {
                for (number, value) in values {
                    self.out.push_str(" #[allow(unreachable_code, clippy::all)] ");
                    self.marked(*number, *number, |page| {
                        page.put(&format!("if crate::mutant::is({number}) {{ return {value}; }}"));
                    });
                }
            }
            Kind::Binary { left, operator, right, others } => {
                let first = self.choice(others);
                for (number, other) in others {
                    let (left, right) = (&text[left.clone()], &text[right.clone()]);
                    self.put(&format!("{number} => "));
                    self.marked(*number, first, |page| page.put(&format!("({left}) {other} ({right})")));
                    self.put(", ");
                }
                self.put("_ => ");
                self.span(left.clone(), Some(index));
                self.copy(left.end..right.start.max(operator.end));
                self.span(right.clone(), Some(index));
                self.put(" })");
            }
            Kind::Unary { operand, number } => {
                self.put("(if crate::mutant::is(");
                self.marked(*number, *number, |page| page.put(&format!("{number}) {{ {}", &text[operand.clone()])));
                self.put(" } else { ");
                self.copy(site.range.start..operand.start);
                self.span(operand.clone(), Some(index));
                self.put(" })");
            }
            Kind::Guard(constants) => {
                let first = self.choice(constants);
                for (number, constant) in constants {
                    self.marked(*number, first, |page| page.put(&format!("{number} => {constant}, ")));
                }
                self.put("_ => ");
                self.span(site.range.clone(), Some(index));
                self.put(" })");
            }
            Kind::ArmEnd { number, has_guard: true } => {
                self.marked(*number, *number, |page| page.put(&format!(" !crate::mutant::is({number}) && ")));
            }
            Kind::ArmEnd { number, has_guard: false } => {
                self.marked(*number, *number, |page| page.put(&format!(" if !crate::mutant::is({number})")));
            }
            Kind::Fields(fields) => {
                let first = self.choice(fields);
                for (number, field) in fields {
                    let (before, after) = (&text[site.range.start..field.start], &text[field.end..site.range.end]);
                    self.marked(*number, first, |page| page.put(&format!("{number} => {before}{after}, ")));
                }
                self.put("_ => ");
                self.span(site.range.clone(), Some(index));
                self.put(" })");
            }
        }
    }

    /// Begins a match on the number, and says the lowest of the numbers that it chooses from.
    fn choice<T>(&mut self, mutants: &[(usize, T)]) -> usize {
        let first = mutants.iter().map(|(number, _)| *number).min().unwrap_or_default();
        self.put(&format!("(match crate::mutant::at({first}) {{ "));
        first
    }

    fn marked(&mut self, number: usize, site: usize, write: impl FnOnce(&mut Self)) {
        let start = self.out.len();
        write(self);
        self.places.insert(number, Place { bytes: (start, self.out.len()), site });
    }

    fn copy(&mut self, range: Range<usize>) {
        if range.start < range.end {
            self.out.push_str(&self.text[range]);
        }
    }

    fn put(&mut self, text: &str) {
        self.out.push_str(text);
    }
}
