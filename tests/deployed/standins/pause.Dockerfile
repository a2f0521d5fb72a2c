# The process that holds a pod's namespaces. In no registry under this name.
FROM outbox-standin:trixie
CMD ["sleep", "infinity"]
