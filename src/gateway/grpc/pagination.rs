//! Pages of lists: each fits the default message limit of gRPC clients, and has a token for the next page.
//!
//! A token is the id of the last item of its page. It grants nothing: a caller only ever gets its own items. If that
//! item has been removed, the next page starts with its successor.

use prost::Message;

use super::request::FieldError;

/// Encoded items of one page; the first one is there whatever its size. Clients take 4 MiB unless told otherwise.
const PAGE_MAX_BYTES: usize = 2 << 20;
/// Items of one page when the caller names no number, and at most.
const PAGE_MAX_ITEMS: usize = 5_000;

/// What page a caller asks for.
#[derive(Debug)]
pub(super) struct PageRequest<Id> {
    /// Items after this one.
    pub after: Option<Id>,
    max_items: usize,
}

/// Reads what a request says of its page.
///
/// # Errors
/// When the size is negative, or the token is none of ours.
pub(super) fn parse_page<Id>(
    size: i32,
    token: &str,
    parse: fn(&str) -> Option<Id>,
) -> Result<PageRequest<Id>, FieldError> {
    let field_error =
        |field: &str, problem: &str| FieldError { field: field.into(), problem: problem.into() };
    let max_items = usize::try_from(size).map_err(|_| field_error("page_size", "must not be negative"))?;
    let after = match token {
        "" => None,
        token => {
            Some(parse(token).ok_or_else(|| field_error("page_token", "is not one of a page of this list"))?)
        }
    };
    Ok(PageRequest {
        after,
        max_items: if max_items == 0 { PAGE_MAX_ITEMS } else { max_items.min(PAGE_MAX_ITEMS) },
    })
}

impl<Id> PageRequest<Id> {
    /// Fills a page from what follows, and gives the token of the next one: empty when nothing is left. An item is only
    /// made when it is looked at.
    pub(super) fn fill<S, T: Message>(
        &self,
        following: impl IntoIterator<Item = S>,
        make: impl Fn(&S) -> T,
        id: impl Fn(&S) -> String,
    ) -> (Vec<T>, String) {
        let (mut page, mut bytes, mut last) = (Vec::new(), 0, String::new());
        for one in following {
            let item = make(&one);
            bytes += item.encoded_len();
            if page.len() >= self.max_items || (bytes > PAGE_MAX_BYTES && !page.is_empty()) {
                return (page, last);
            }
            last = id(&one);
            page.push(item);
        }
        (page, String::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(size: i32, token: &str, items: &[&str]) -> (Vec<String>, String) {
        let wanted = parse_page(size, token, |text| Some(text.to_owned())).unwrap();
        let following = items.iter().filter(|item| wanted.after.as_deref() < Some(**item));
        wanted.fill(following, |item| item.to_string(), |item| item.to_string())
    }

    #[test]
    fn pages_follow_one_another_without_a_gap() {
        let all = ["a", "b", "c"];
        assert_eq!(fill(2, "", &all), (vec!["a".into(), "b".into()], "b".into()));
        assert_eq!(fill(2, "b", &all), (vec!["c".into()], String::new()));
        assert_eq!(fill(0, "", &all).1, "");
        assert_eq!(fill(1, "b", &["a", "c"]), (vec!["c".into()], String::new()), "an item may have gone");
    }

    #[test]
    fn a_page_is_bounded_by_bytes_and_has_one_item_at_least() {
        let large = ["a".repeat(PAGE_MAX_BYTES), "b".repeat(PAGE_MAX_BYTES)];
        let (page, next) = fill(0, "", &[&large[0], &large[1]]);
        assert_eq!((page.len(), next), (1, large[0].clone()));
        // A text of this length is encoded with four more bytes.
        let half = "a".repeat(PAGE_MAX_BYTES / 2 - 4);
        assert_eq!(half.encoded_len() * 2, PAGE_MAX_BYTES);
        assert_eq!(fill(0, "", &[&half, &half]).0.len(), 2, "a page may be as large as the bound");
        assert_eq!(fill(0, "", &[&half, &half, "c"]).0.len(), 2);
    }

    #[test]
    fn a_page_has_as_many_items_as_are_asked_for_and_no_more_than_the_bound() {
        let all: Vec<String> = (0..=PAGE_MAX_ITEMS).map(|number| format!("{number:05}")).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let many = i32::try_from(all.len()).unwrap();
        for (size, items) in [(0, PAGE_MAX_ITEMS), (1, 1), (many - 1, PAGE_MAX_ITEMS), (many, PAGE_MAX_ITEMS)]
        {
            let (page, next) = fill(size, "", &all);
            assert_eq!((page.len(), next.as_str()), (items, all[items - 1]), "{size}");
        }
    }

    #[test]
    fn a_size_or_token_that_cannot_be_meant_is_refused_by_name() {
        let parse = |text: &str| text.parse::<u32>().ok();
        assert_eq!(parse_page(-1, "", parse).unwrap_err().field, "page_size");
        assert_eq!(parse_page(0, "x", parse).unwrap_err().field, "page_token");
    }
}
