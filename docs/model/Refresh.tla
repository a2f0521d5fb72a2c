------------------------------- MODULE Refresh -------------------------------
(* A document of the view: its transactions commit in any order, each with  *)
(* one refresh; workers claim it, draw a version, read the view, write,     *)
(* settle. Requests arrive late or twice, replies are lost, workers sleep,  *)
(* die and lose their leases, the server forgets deletes.                   *)
EXTENDS Core

CONSTANTS
    Events,    \* 1..N, each with its transaction
    Removals,  \* those that remove the row, or make it again
    Forgets,   \* how often the server forgets a delete
    Ahead,     \* 0, or the version at which a restored database finds its index
    Stream     \* records of Kafka: they may come before snapshots see their transaction

VARIABLES seen, seq, index, wire, work, forgets
vars == <<rows, seen, seq, index, wire, work, forgets>>

Owed == 0      \* the event that a worker writes for what it wrote too late
Rows == Events \cup {Owed}
Old == {1000}  \* what only the database from before the restore had
Body(changes) == IF Cardinality(changes \cap Removals) % 2 = 1 THEN Gone ELSE changes
View == Body(seen)

Idle == [at |-> "idle", event |-> Owed, token |-> 0, v |-> 0, body |-> Gone, current |-> 0, refused |-> 0,
         old |-> FALSE, late |-> FALSE]  \* old: read so long ago that a delete may be forgotten; late: such a thing was written

Init ==
    /\ rows = [e \in Rows |-> Row(IF e = Owed THEN "none" ELSE "open")]
    /\ seen = {}
    /\ seq = Cardinality(Events)
    /\ index = IF Ahead > 0 THEN [v |-> Ahead, body |-> Old] ELSE [v |-> 0, body |-> {}]
    /\ wire = {}
    /\ work = [w \in Workers |-> Idle]
    /\ forgets = 0

----------------------------------------------------------------------------
(* Producers *)

Commit(e) ==
    /\ Is(e, "open")
    /\ rows' = Become(e, "pending")
    /\ \/ seen' = seen \cup {e}
       \/ Stream /\ seen' = seen
    /\ UNCHANGED <<seq, index, wire, work, forgets>>

Show(e) ==
    /\ Stream /\ ~Is(e, "open") /\ e \notin seen
    /\ seen' = seen \cup {e}
    /\ UNCHANGED <<rows, seq, index, wire, work, forgets>>

----------------------------------------------------------------------------
(* A worker with one batch *)

At(w, step) == work[w].at = step
Go(w, step) == work' = [work EXCEPT ![w].at = step]

DrawEarly(w) ==
    /\ Bug = "drawn before the claim" /\ At(w, "idle") /\ work[w].v = 0
    /\ seq' = seq + 1
    /\ work' = [work EXCEPT ![w].v = seq + 1]
    /\ UNCHANGED <<rows, seen, index, wire, forgets>>

Claim(w, e) ==
    /\ At(w, "idle") /\ Is(e, "pending")
    /\ rows' = Claimed(e)
    /\ work' = [work EXCEPT ![w] = [Idle EXCEPT !.at = "claimed", !.event = e, !.token = rows'[e].claims, !.v = work[w].v]]
    /\ UNCHANGED <<seen, seq, index, wire, forgets>>

Number(w) ==
    CASE Bug = "drawn at the insert" -> work[w].event
      [] Bug = "drawn before the claim" /\ work[w].v > 0 -> work[w].v
      [] OTHER -> seq + 1

Visible(e) == e \in seen \/ e = Owed \/ Bug = "does not wait for its transaction"

Draw(w) ==
    /\ At(w, IF Bug = "drawn after the read" THEN "second" ELSE "claimed")
    /\ Visible(work[w].event)
    /\ seq' = Max(seq, Number(w))
    /\ work' = [work EXCEPT ![w].v = Number(w), ![w].at = IF @ = "claimed" THEN "second" ELSE "ready"]
    /\ UNCHANGED <<rows, seen, index, wire, forgets>>

Read(w) ==
    /\ At(w, IF Bug = "drawn after the read" THEN "claimed" ELSE "second")
    /\ work' = [work EXCEPT ![w].body = View, ![w].at = IF @ = "claimed" THEN "second" ELSE "ready"]
    /\ UNCHANGED <<rows, seen, seq, index, wire, forgets>>

Send(w) ==
    /\ At(w, "ready") /\ Go(w, "sent")
    /\ wire' = wire \cup {[by |-> w, v |-> work[w].v, body |-> work[w].body]}
    /\ rows' = IF Bug = "done before the reply" THEN Settled(work[w].event, work[w].token, "done") ELSE rows
    /\ UNCHANGED <<seen, seq, index, forgets>>

Awaits(m) == At(m.by, "sent") /\ work[m.by].v = m.v

Arrive(m) ==
    /\ wire' = wire \ {m}
    /\ index' = Written(index, m.v, m.body)
    /\ work' = IF ~Awaits(m) THEN work ELSE
        [work EXCEPT ![m.by].at = IF Accepts(index, m.v) THEN "written" ELSE "refused", ![m.by].current = index.v]
    /\ UNCHANGED <<rows, seen, seq, forgets>>

(* The server, or the network, loses it.                               *)
Lose(m) ==
    /\ Awaits(m) /\ Holds(work[m.by].event, work[m.by].token) => MayComeBack(work[m.by].event)
    /\ wire' = wire \ {m}
    /\ UNCHANGED <<rows, seen, seq, index, work, forgets>>

Late(w) == work[w].old /\ Bug # "a late write is left as it is"
Again(w, more) ==
    work' = [work EXCEPT ![w].at = "claimed", ![w].v = 0, ![w].refused = @ + more, ![w].old = FALSE, ![w].late = @ \/ work[w].old]
Settle(w, status) ==
    /\ rows' = Settled(work[w].event, work[w].token, status)
    /\ work' = [work EXCEPT ![w] = Idle]

(* What was written too late is done again, lease or not.                  *)
Redo(w) ==
    /\ work[w].at \in {"written", "refused"} /\ Late(w)
    /\ Again(w, 0)
    /\ UNCHANGED <<rows, seen, seq, index, wire, forgets>>

Done(w) ==
    /\ At(w, "written") /\ ~Late(w)
    /\ Settle(w, "done")
    /\ UNCHANGED <<seen, seq, index, wire, forgets>>

IsAhead(w) == work[w].current > Max(seq, work[w].v) /\ Bug # "a version ahead is superseded"

(* The sequence never gave that version out: raised, and done again.       *)
Raise(w) ==
    /\ At(w, "refused") /\ ~Late(w) /\ IsAhead(w)
    /\ seq' = work[w].current
    /\ Again(w, 1)
    /\ UNCHANGED <<rows, seen, index, wire, forgets>>

(* Superseded only under a number that was drawn after its first refusal.  *)
MetHigher(w) ==
    /\ At(w, "refused") /\ ~Late(w) /\ ~IsAhead(w)
    /\ IF work[w].refused = 0 /\ Bug \notin {"superseded at the first refusal", "a version ahead is superseded"}
       THEN Again(w, 1) /\ UNCHANGED rows
       ELSE Settle(w, "done")
    /\ UNCHANGED <<seen, seq, index, wire, forgets>>

(* No reply: the event is tried later. Where that is someone else's by now *)
(* and it may be written too late, a new event is owed.                    *)
GiveUp(w) ==
    /\ At(w, "sent")
    /\ Holds(work[w].event, work[w].token) => MayComeBack(work[w].event)
    /\ LET mine == Holds(work[w].event, work[w].token)
           owes == ~mine /\ (Late(w) \/ work[w].late) /\ Bug # "nothing is owed"
       IN IF owes
          THEN rows' = Become(Owed, "pending") /\ work' = [work EXCEPT ![w] = Idle]
          ELSE Settle(w, "pending")
    /\ UNCHANGED <<seen, seq, index, wire, forgets>>

----------------------------------------------------------------------------
(* Faults *)

(* Not modelled by default: a worker that wrote too late, has lost its row *)
(* to others that finished it, and dies before it has done it again.       *)
Exposed(w) == (work[w].old \/ work[w].late) /\ ~Holds(work[w].event, work[w].token) /\ Bug # "dies after a late write"

Die(w) ==
    /\ ~At(w, "idle") /\ ~Exposed(w)
    /\ Holds(work[w].event, work[w].token) => MayComeBack(work[w].event)
    /\ work' = [work EXCEPT ![w] = Idle]
    /\ UNCHANGED <<rows, seen, seq, index, wire, forgets>>

Reclaim(e) ==
    /\ Reclaimed(e)
    /\ UNCHANGED <<seen, seq, index, wire, work, forgets>>

(* After gc_deletes: no request is that old, and who drew before knows by  *)
(* the clock that it is late.                                              *)
Forget ==
    /\ index.body = Gone /\ index.v > 0 /\ wire = {} /\ forgets < Forgets
    /\ index' = Forgotten /\ forgets' = forgets + 1
    /\ work' = [w \in Workers |-> [work[w] EXCEPT !.old = @ \/ work[w].at \notin {"idle", "claimed"}]]
    /\ UNCHANGED <<rows, seen, seq, wire>>

(* A refresh of another document met a version ahead.                      *)
RaiseElsewhere ==
    /\ seq < Ahead /\ seq' = Ahead
    /\ UNCHANGED <<rows, seen, index, wire, work, forgets>>

----------------------------------------------------------------------------
Over == (\A e \in Rows : rows[e].status \in {"done", "none"}) /\ seen = Events
Quiet == Over /\ wire = {} /\ \A w \in Workers : At(w, "idle")

Step(w) ==
    \/ DrawEarly(w) \/ (\E e \in Rows : Claim(w, e)) \/ Draw(w) \/ Read(w) \/ Send(w)
    \/ Redo(w) \/ Done(w) \/ Raise(w) \/ MetHigher(w) \/ GiveUp(w) \/ Die(w)

Next ==
    \/ \E e \in Events : Commit(e) \/ Show(e)
    \/ \E w \in Workers : Step(w)
    \/ \E m \in wire : Arrive(m) \/ Lose(m)
    \/ \E e \in Rows : Reclaim(e)
    \/ Forget \/ RaiseElsewhere
    \/ Quiet /\ UNCHANGED vars

Spec == Init /\ [][Next]_vars /\ WF_vars(Next)

NothingLost == Quiet /\ View # Gone => index.body # Gone
NothingBack == Quiet /\ View = Gone => index.body = Gone
NothingStale == Quiet => index.body = View
DoneStaysDone == [][\A e \in Events : Is(e, "done") => rows'[e].status = "done"]_vars
AllSettled == <>Quiet
=============================================================================
