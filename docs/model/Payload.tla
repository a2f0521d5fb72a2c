------------------------------- MODULE Payload -------------------------------
(* A document whose events bring it, under their own versions, which grow in *)
(* the order of their commits. The server forgets deletes, PostgreSQL does   *)
(* not: so an upsert out of claim order is checked against newer deletes     *)
(* before it is sent, and again before it is settled.                        *)
EXTENDS Core

CONSTANTS
    Events,   \* 1..N: an event's number is its version
    Deletes,  \* the others are upserts
    Forgets   \* how often the server forgets a delete

VARIABLES index, wire, work, old, forgets
vars == <<rows, index, wire, work, old, forgets>>

Document(e) == IF e \in Deletes THEN Gone ELSE {e}
Newest == CHOOSE e \in Events : \A other \in Events : other <= e
Idle == [at |-> "idle", event |-> 0, token |-> 0, sends |-> 0, late |-> FALSE]

Init ==
    /\ rows = [e \in Events |-> Row("open")]
    /\ index = Forgotten
    /\ wire = {}
    /\ work = [w \in Workers |-> Idle]
    /\ old = {}     \* events so old that the server may have forgotten a newer delete
    /\ forgets = 0

At(w, step) == work[w].at = step
Go(w, step) == work' = [work EXCEPT ![w].at = step]

(* The lock of the entity makes versions grow in the order of commits.     *)
Commit(e) ==
    /\ Is(e, "open") /\ \A other \in Events : Is(other, "open") => e <= other
    /\ rows' = Become(e, "pending")
    /\ UNCHANGED <<index, wire, work, old, forgets>>

Claim(w, e) ==
    /\ At(w, "idle") /\ Is(e, "pending")
    /\ rows' = Claimed(e)
    /\ work' = [work EXCEPT ![w] = [Idle EXCEPT !.at = "claimed", !.event = e, !.token = rows'[e].claims]]
    /\ UNCHANGED <<index, wire, old, forgets>>

(* Known from the row alone: claimed before, or old.                       *)
OutOfOrder(w) == work[w].event \notin Deletes /\ (work[w].token > 1 \/ work[w].event \in old)
Overdue(w) == work[w].event \notin Deletes /\ (work[w].token > 1 \/ work[w].late)

InTheWay == IF Bug = "a delete in flight is not asked for" THEN {"done"} ELSE {"done", "processing"}
NewerDeletes(w) == {d \in Deletes : d > work[w].event /\ rows[d].status \in InTheWay}
Highest(set) == CHOOSE d \in set : \A other \in set : other <= d

(* A newer delete goes out in the upsert's place.                          *)
Prepare(w) ==
    /\ At(w, "claimed")
    /\ LET asks == OutOfOrder(w) /\ Bug \notin {"no check before the send", "no check at all"}
           newer == NewerDeletes(w)
       IN work' = [work EXCEPT ![w].at = "ready", ![w].sends = IF asks /\ newer # {} THEN Highest(newer) ELSE work[w].event]
    /\ UNCHANGED <<rows, index, wire, old, forgets>>

Send(w) ==
    /\ At(w, "ready") /\ Go(w, "sent")
    /\ wire' = wire \cup {[by |-> w, token |-> work[w].token, event |-> work[w].event, v |-> work[w].sends]}
    /\ UNCHANGED <<rows, index, old, forgets>>

Awaits(m) == At(m.by, "sent") /\ work[m.by].event = m.event /\ work[m.by].token = m.token /\ work[m.by].sends = m.v

Arrive(m) ==
    /\ wire' = wire \ {m}
    /\ index' = Written(index, m.v, Document(m.v))
    /\ work' = IF Awaits(m) THEN [work EXCEPT ![m.by].at = "answered"] ELSE work
    /\ UNCHANGED <<rows, old, forgets>>

(* One that was settled, or applied, while ours was on its way is sent again, lease or not. *)
Undo(w) ==
    /\ At(w, "answered") /\ Overdue(w) /\ work[w].sends = work[w].event /\ NewerDeletes(w) # {}
    /\ Bug \notin {"no check before the settle", "no check at all"}
    /\ work' = [work EXCEPT ![w].at = "ready", ![w].sends = Highest(NewerDeletes(w))]
    /\ UNCHANGED <<rows, index, wire, old, forgets>>

Settle(w, status) ==
    /\ rows' = Settled(work[w].event, work[w].token, status)
    /\ work' = [work EXCEPT ![w] = Idle]

Done(w) ==
    /\ At(w, "answered") /\ ~ENABLED Undo(w)
    /\ Settle(w, "done")
    /\ UNCHANGED <<index, wire, old, forgets>>

GiveUp(w) ==
    /\ At(w, "sent") /\ MayComeBack(work[w].event) /\ Holds(work[w].event, work[w].token)
    /\ Settle(w, "pending")
    /\ UNCHANGED <<index, wire, old, forgets>>

(* Not modelled: a worker that wrote too late, has lost its row to others  *)
(* that finished it, and dies or gets no reply before it has undone it.    *)
Die(w) ==
    /\ ~At(w, "idle") /\ Holds(work[w].event, work[w].token) /\ MayComeBack(work[w].event)
    /\ work' = [work EXCEPT ![w] = Idle]
    /\ UNCHANGED <<rows, index, wire, old, forgets>>

Reclaim(e) == Reclaimed(e) /\ UNCHANGED <<index, wire, work, old, forgets>>

(* A done delete stays while an older event of its entity does. Nobody     *)
(* sleeps for as long as rows are kept.                                    *)
Prune(e) ==
    /\ Is(e, "done") /\ \A w \in Workers : work[w].event # e
    /\ e \in Deletes /\ Bug # "a delete is pruned before what is older" =>
        \A other \in Events : other < e => Is(other, "pruned")
    /\ rows' = Become(e, "pruned")
    /\ UNCHANGED <<index, wire, work, old, forgets>>

(* A minute after the delete: whatever is older than it was there before.  *)
Forget ==
    /\ index.body = Gone /\ index.v > 0 /\ wire = {} /\ forgets < Forgets
    /\ index' = Forgotten /\ forgets' = forgets + 1
    /\ old' = old \cup {e \in Events : e < index.v}
    /\ work' = [w \in Workers |-> [work[w] EXCEPT !.late = @ \/ ~At(w, "idle")]]
    /\ UNCHANGED <<rows, wire>>

Over == \A e \in Events : rows[e].status \in {"done", "pruned"}
Quiet == Over /\ wire = {} /\ \A w \in Workers : At(w, "idle")

Step(w) ==
    \/ (\E e \in Events : Claim(w, e)) \/ Prepare(w) \/ Send(w) \/ Undo(w) \/ Done(w) \/ GiveUp(w) \/ Die(w)

Next ==
    \/ \E e \in Events : Commit(e) \/ Reclaim(e) \/ Prune(e)
    \/ \E w \in Workers : Step(w)
    \/ \E m \in wire : Arrive(m)
    \/ Forget
    \/ Quiet /\ UNCHANGED vars

Spec == Init /\ [][Next]_vars /\ WF_vars(Next)

NothingLost == Quiet /\ Newest \notin Deletes => index.body # Gone
NothingBack == Quiet /\ Newest \in Deletes => index.body = Gone
NothingStale == Quiet => index.body = Document(Newest)
AllSettled == <>Quiet
=============================================================================
