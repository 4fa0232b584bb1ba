// A time on the cluster's clock as a clock on the wall shows it.

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** "14:03:12", with the day if that is not today; "" as long as nobody knows when the cluster's clock began. */
export function onTheWall(epoch, time, today = new Date()) {
  if (typeof epoch !== "number" || typeof time !== "number") return "";
  const then = new Date((epoch + time) * 1000);
  const clock = [then.getHours(), then.getMinutes(), then.getSeconds()].map((one) => String(one).padStart(2, "0")).join(":");
  return then.toDateString() === today.toDateString() ? clock : `${then.getDate()} ${MONTHS[then.getMonth()]} ${clock}`;
}
