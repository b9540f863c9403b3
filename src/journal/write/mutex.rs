//! Locks a mutex whose state stays valid when a thread panics while it holds it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks; a poisoned mutex is locked all the same. Only for state that every critical section leaves consistent: each
/// change of it is a single assignment or push.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
